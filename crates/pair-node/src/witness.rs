//! Questions to the witness, each over a connection of its own since they are rare (to Ceph over
//! one that stays). Without a witness, the side that has the last word answers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use weir_base::limits::mirror::WITNESS_PERIOD;
use weir_mirror::ask::{self, LENGTH, Question, Reply};
use weir_mirror::{FileWitness, Register, Swap, Witness};

use super::config::Name;
use super::config::WitnessAt;
use super::own_register::{FOLDER, MET};
use super::pair::Pair;
use super::postgres;
use super::rados;
use super::service::WitnessContact;
use weir_peer_link::identity::{in_words, is_stranger};
use weir_peer_link::stream::secure;

/// Maximum time that a witness may take to reply.
const PATIENCE: Duration = Duration::from_secs(1);

/// Asks the rules' questions, and monitors the witness.
pub async fn run(pair: &Arc<Pair>, asked: mpsc::UnboundedReceiver<Option<Register>>) {
    tokio::join!(ask_all(pair, asked), watch(pair));
}

/// Reads the register every [`WITNESS_PERIOD`] seconds, so that a user learns in time that the
/// witness is gone. The rules do not see the reply.
async fn watch(pair: &Arc<Pair>) {
    let Some(at) = &pair.config.witness else {
        return;
    };
    loop {
        let reply = match timeout(PATIENCE, look(pair, at)).await {
            Ok(reply) => reply.map_err(|e| in_words(&e)),
            Err(_) => Err("it does not reply".to_owned()),
        };
        note(pair, reply);
        tokio::time::sleep(Duration::from_secs(WITNESS_PERIOD)).await;
    }
}

/// Notes whether the witness has replied.
fn note(pair: &Pair, reply: std::result::Result<(), String>) {
    let mut heard = pair.service.heard().lock();
    match reply {
        Ok(()) => {
            *heard = WitnessContact {
                at: Some(pair.clock.monotonic()),
                fault: None,
            };
        }
        Err(why) => heard.fault = Some(why),
    }
}

/// Reads the register; a witness that knows no such pair replies as well.
async fn look(pair: &Arc<Pair>, at: &WitnessAt) -> Result<()> {
    let first = || bail!("cannot read the register: there is no such pair");
    if let Some(asked) = ask_store(pair, at, None, first).await {
        return asked.map(drop);
    }
    match put(pair, at, Question::Read).await? {
        Reply::Refused => bail!("cannot read the register: refused"),
        Reply::Is(_) | Reply::None => Ok(()),
    }
}

/// Asks the rules' questions one after the other; of several that wait only the last is asked.
async fn ask_all(pair: &Arc<Pair>, mut asked: mpsc::UnboundedReceiver<Option<Register>>) {
    while let Some(mut to) = asked.recv().await {
        while let Ok(later) = asked.try_recv() {
            to = later;
        }
        if to.is_some() {
            // Changes that this side has acknowledged become durable before it may be the only one
            // that has them.
            let settles = Arc::clone(pair);
            let settled = tokio::task::spawn_blocking(move || match settles.log_ephemeral {
                true => settles.engine.cp_now(),
                false => settles.standby.wait_durable(&settles.engine),
            });
            match settled.await {
                Ok(Ok(())) => {}
                Ok(Err(why)) => {
                    pair.replied(Err(format!("what was received is not durable here: {why}")));
                    continue;
                }
                // A panic has ended the process.
                Err(_) => return,
            }
        }
        let reply = match &pair.config.witness {
            Some(at) => {
                let shown = postgres::redact_password(&at.address);
                let reply = timeout(PATIENCE, remote(pair, at, to)).await;
                if let Ok(Ok(_)) = &reply {
                    note(pair, Ok(()));
                }
                match reply {
                    Ok(Err(error)) if is_stranger(&error) => Err(format!(
                        "the witness at {shown} does not know this node: `weir witness … --node {}` there, if it is one of the pair",
                        pair.identity.fingerprint
                    )),
                    Ok(reply) => {
                        reply.map_err(|e| format!("the witness at {shown}: {}", in_words(&e)))
                    }
                    Err(_) => Err(format!("the witness at {shown} does not reply")),
                }
            }
            None => local(pair, to).map_err(|e| format!("{e:#}")),
        };
        pair.replied(reply);
    }
}

/// Returns the register of a new pair, which side A makes.
fn first(pair: &Pair) -> Result<Register> {
    let known = pair.inner.lock().rules.state();
    let first = Register::first(weir_mirror::Side::A);
    match pair.config.side == Name::A && known.register() == first {
        true => Ok(first),
        false => bail!("cannot read the register: the pair is unknown, and was known before"),
    }
}

/// Reads the register of a witness that is a row or an object, or changes it to `to`. `None`: the
/// witness is neither.
async fn ask_store(
    pair: &Arc<Pair>,
    at: &WitnessAt,
    to: Option<Register>,
    first: impl FnOnce() -> Result<Register>,
) -> Option<Result<Swap>> {
    let (address, id) = (&at.address, pair.engine.aggregate().id().to_string());
    if postgres::is_database(address) {
        return Some(postgres::swap_register(address, &id, to, first).await);
    }
    if rados::is_pool(address) {
        return Some(pair.rados.swap_register(address, &id, to, first).await);
    }
    None
}

async fn remote(pair: &Arc<Pair>, at: &WitnessAt, to: Option<Register>) -> Result<Swap> {
    if let Some(asked) = ask_store(pair, at, to, || first(pair)).await {
        return asked;
    }
    let question = to.map_or(Question::Read, Question::Swap);
    match put(pair, at, question).await? {
        Reply::Is(swap) => Ok(swap),
        Reply::Refused => bail!("cannot access the register: refused"),
        Reply::None => match put(pair, at, Question::Swap(first(pair)?)).await? {
            Reply::Is(swap) => Ok(swap),
            _ => bail!("cannot create the register: refused"),
        },
    }
}

async fn put(pair: &Arc<Pair>, at: &WitnessAt, question: Question) -> Result<Reply> {
    let stream = TcpStream::connect(&at.address).await?;
    stream.set_nodelay(true)?;
    let config = pair.identity.client(&at.fingerprint)?;
    let mut tls = secure(config, stream).await?;
    let id = pair.engine.aggregate().id().0;
    tls.write_all(&ask::question(question, id)).await?;
    tls.flush().await?;
    let mut said = [0; LENGTH];
    tls.read_exact(&mut said).await?;
    ask::reply(&said).context("cannot read the reply: malformed")
}

fn local(pair: &Arc<Pair>, to: Option<Register>) -> Result<Swap> {
    if !pair.config.keeps_register() {
        return match (to, pair.inner.lock().rules.told()) {
            (None, Some(register)) => Ok(Swap::Done(register)),
            (None, None) => bail!(
                "cannot read the register: no witness, and the other side, which is preferred, has not said who is primary"
            ),
            // The other side has become primary again meanwhile.
            (Some(to), Some(register)) if register.version >= to.version => {
                Ok(Swap::Lost(register))
            }
            (Some(_), _) => bail!(
                "cannot change the register: no witness, and the other side is preferred (`weir pair takeover --force` once it is off for good)"
            ),
        };
    }
    let id = pair.engine.aggregate().id().0;
    let folder = pair.folder.join(FOLDER);
    std::fs::create_dir_all(&folder)?;
    let mut witness = FileWitness::open(&folder)?;
    Ok(match (to, witness.read(id)?) {
        (Some(to), Some(_)) => witness.swap(id, to)?,
        (None, Some(register)) => {
            // A side that never connected holds nothing that it could serve.
            let knows = pair.inner.lock().rules.heard() || !folder.join(MET).exists();
            if !knows {
                bail!(
                    "cannot read the register: no witness, and since this node has started the other side has not said whether a \
                     user has it serve (start it, or, if it is off for good, `weir pair takeover --force` here)"
                );
            }
            Swap::Done(register)
        }
        (_, None) => witness.swap(id, first(pair)?)?,
    })
}
