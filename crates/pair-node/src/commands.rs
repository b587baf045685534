//! Commands that a running node carries out for `weir pair`, over the socket in its data folder.

use std::io;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};

use super::pair::Pair;
use weir_node::control_socket::{Commands, say_lines};

/// Commands of a node.
pub struct PairCommands {
    /// The pair that the node is one of.
    pub pair: Option<Arc<Pair>>,
    /// Commands of the server; `None` while it does not serve.
    pub next: Option<Arc<dyn Commands>>,
}

impl Pair {
    /// Checks that the partner could serve from now on.
    ///
    /// # Errors
    /// As [`Pair::hand_over`].
    pub fn may_hand_over(&self) -> Result<()> {
        let shown = self.show();
        ensure!(
            shown.serving,
            "cannot hand over: this node does not serve (ask the other node)"
        );
        ensure!(
            shown.in_sync && shown.connected,
            "cannot hand over: the partner is not in sync"
        );
        Ok(())
    }

    /// Makes the partner serve from now on.
    ///
    /// # Errors
    /// This node does not serve, or the partner cannot.
    pub fn hand_over(&self) -> Result<()> {
        self.may_hand_over()?;
        self.service.switch();
        Ok(())
    }
}

impl Commands for PairCommands {
    fn run(&self, request: &str, say: &mut dyn FnMut(&str) -> io::Result<()>) -> Result<String> {
        let Some(request) = request.strip_prefix("pair ") else {
            return match &self.next {
                Some(next) => next.run(request, say),
                None => bail!(
                    "cannot run the command: this node is its pair's standby and serves no clients"
                ),
            };
        };
        let Some(pair) = &self.pair else {
            bail!("cannot run the command: this data folder is not one of a pair");
        };
        match request {
            "show" => {
                say_lines(say, &pair.show().lines)?;
                Ok(String::new())
            }
            "show --json" => Ok(pair.show().data().to_string()),
            "switch" => {
                pair.hand_over()?;
                Ok("the partner takes over".to_owned())
            }
            "switch --validate-only" => {
                pair.may_hand_over()?;
                Ok("the partner would take over; nothing was changed".to_owned())
            }
            "takeover --force" => {
                pair.force()?;
                Ok("this node asks the witness to be primary; `weir pair show` says what becomes of it".to_owned())
            }
            "resync" | "resync --everything" => {
                pair.resync(request.ends_with("--everything"))?;
                Ok("this node's copy is brought up anew from the primary's; `weir pair show` says how far it is".to_owned())
            }
            "verify" | "verify --repair" => pair.verify(request.ends_with("--repair")),
            other => bail!("'pair {other}' is not known"),
        }
    }
}
