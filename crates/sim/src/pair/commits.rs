//! COMMITs by each of the ways in which one is carried out, beside the operations that the model
//! knows: on a volume of its own.

use std::sync::Arc;

use weir_base::{Ino, Time};
use weir_volume::{
    Backpressure, CreateHow, EngineContext, FsError, SetAttr, Stability, Stop, Volume,
};

use crate::machine::{LOG, VOLUME};

use super::{CheckResult, Story};

/// Bytes of a write: more pages than a commit puts into the log.
const WRITE: usize = 70 * 4096;

impl Story<'_> {
    /// Writes without stability and commits, while a checkpoint or later writes come between. What
    /// the commit promises is not promised before the partner has it.
    pub(super) fn commits(&mut self) -> CheckResult {
        self.serial += 1;
        let (choices, serial) = (self.choices, self.serial);
        let world = Arc::clone(&self.machine.world);
        let engine = &self.running.engine;
        let full = || engine.aggregate().log().stream_full();
        let others = engine.volumes();
        let Some(vol) = others.iter().find(|vol| vol.name() != VOLUME) else {
            return self.volumes();
        };
        let mirror = self.mirror.get_mut();
        world.release_all(LOG);
        mirror.drain(engine)?;
        if full() || world.crashed() || vol.splitting() {
            world.hold(LOG, true);
            return Ok(());
        }
        let small = choices.chance(1, 3);
        let overtaken = choices.below(7);
        let mut ways = String::new();
        let mut commit = || -> Result<bool, FsError> {
            let mut byte = serial as u8;
            let ino = open(vol)?;
            write(vol, ino, byte, if small { 5000 } else { WRITE })?;
            if small {
                engine.cp_now()?;
            }
            let mut cx = EngineContext::new(Time::EPOCH);
            let mut left = overtaken;
            let lsn = loop {
                let stop = match vol.commit(&mut cx, ino, 0, 0) {
                    Ok(done) => break done.lsn,
                    Err(stop) => stop,
                };
                match &stop {
                    Stop::Land if left > 0 => {
                        left -= 1;
                        if choices.chance(2, 3) && mirror.drain(engine).is_err() {
                            return Err(FsError::Io);
                        }
                        if !full() {
                            ways.push('w');
                            byte = byte.wrapping_add(1);
                            write(vol, ino, byte, WRITE)?;
                        }
                    }
                    Stop::Wait(Backpressure::Mirror) => {
                        mirror.drain(engine).map_err(|_| FsError::Io)?;
                        if full() {
                            mirror.leave(engine);
                        }
                    }
                    stop => ways.push(if matches!(stop, Stop::Wait(_)) {
                        'c'
                    } else {
                        'f'
                    }),
                }
                vol.resume_blocking(&mut cx, stop)?;
            };
            let Some(lsn) = lsn else {
                return Ok(true);
            };
            let written = engine.aggregate().log().wait_written(lsn);
            written.map_err(|_| FsError::Io)?;
            Ok(engine.durable() >= lsn)
        };
        let told = commit();
        world.hold(LOG, true);
        let has = mirror.partner.acknowledged;
        let last = mirror.stream.as_ref().map_or(has, |stream| stream.last().0);
        self.note(format!(
            "a commit of {WRITE} or little ({small}), {ways}: {told:?}"
        ));
        match told {
            Ok(true) if has < last => Err(format!(
                "a commit is reported, and the standby has {has} of {last}"
            )),
            Err(FsError::NoSpace) | Ok(_) => Ok(()),
            Err(_) if self.crashed() => Ok(()),
            Err(e) => Err(format!("a commit: {e}")),
        }
    }
}

fn open(vol: &Volume) -> Result<Ino, FsError> {
    let mut cx = EngineContext::new(Time::EPOCH);
    let set = SetAttr::default();
    let made = vol.drive_blocking(&mut cx, |cx| {
        vol.create(cx, vol.root(), b"committed", CreateHow::Unchecked, &set)
    })?;
    Ok(made.value.ino)
}

fn write(vol: &Volume, ino: Ino, byte: u8, len: usize) -> Result<(), FsError> {
    let mut cx = EngineContext::new(Time::EPOCH);
    let data = vec![byte; len];
    let how = Stability::Unstable;
    vol.drive_blocking(&mut cx, |cx| vol.write(cx, ino, 0, &data, how))?;
    Ok(())
}
