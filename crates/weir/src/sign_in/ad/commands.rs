//! `weir ad`: a server's membership of a domain, by hand.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::Membership;
use crate::cli::{AdCommand, AdJoin};
use crate::sign_in::accounts::password;
use weir_auth::ad::{self, Member, Request};
use weir_node::control_socket::{self, Commands};
use weir_node::{data_folder, os};

/// Request to a running server, over its control socket.
const RELOAD: &str = "ad reload";

/// Commands of the control socket: reading the membership again, and all others by `next`.
pub struct MembershipCommands<C> {
    /// The membership.
    pub membership: Arc<Membership>,
    /// The other commands.
    pub next: C,
}

impl<C: Commands> Commands for MembershipCommands<C> {
    fn run(&self, request: &str, say: &mut dyn FnMut(&str) -> io::Result<()>) -> Result<String> {
        if request != RELOAD {
            return self.next.run(request, say);
        }
        let member = self.membership.reload()?;
        Ok(match (member, self.membership.fixed) {
            (_, true) => {
                "the server goes on with the keys of --krb5-keytab; start it without".to_owned()
            }
            (Some(member), false) => format!("users log on with tickets of {}", member.realm),
            (None, false) => "tickets are not accepted any more".to_owned(),
        })
    }
}

/// `weir ad`
pub fn run(command: &AdCommand) -> Result<()> {
    match command {
        AdCommand::Join(args) => join(args),
        AdCommand::Show { data, output } => match ad::read(data)? {
            Some(member) => output.print(&described(&member), render_member(&member).trim_end()),
            None => output.print(&Value::Null, "a member of no domain"),
        },
        AdCommand::Testjoin { data, output } => {
            let member = ad::test(data)?;
            let text = format_args!("{} knows the keys of {}", member.domain, member.computer);
            output.print(&described(&member), text)
        }
        AdCommand::Leave { user, data, output } => {
            let user = user.as_deref();
            let asked = user.map(|user| password(user).map(|password| (user, password)));
            let asked = asked.transpose()?;
            let credentials = asked
                .as_ref()
                .map(|(user, password)| (*user, password.as_str()));
            let member = ad::leave(data, credentials)?;
            let account = match credentials {
                Some(_) => "its account is deleted".to_owned(),
                None => format!(
                    "its account {} stays in the domain: delete it there, or leave with --user",
                    member.computer
                ),
            };
            let known = known(data);
            let done = json!({
                "domain": member.domain,
                "accountDeleted": credentials.is_some(),
                "message": format!("{account}{known}"),
            });
            output.print(
                &done,
                format_args!("left {}; {account}{known}", member.domain),
            )
        }
    }
}

fn join(args: &AdJoin) -> Result<()> {
    ensure!(
        data_folder::is_served(&args.data),
        "{} is no data folder of a server: start `weir serve` on it first",
        args.data.display()
    );
    let password = password(&args.user)?;
    ensure!(
        !password.is_empty(),
        "cannot join the domain: empty password"
    );
    let request = Request {
        domain: args.domain.clone(),
        controller: args.domain_controller.clone().unwrap_or_default(),
        computer: args.computer_name.clone().unwrap_or_default(),
        unit: args.computer_ou.clone().unwrap_or_default(),
        host: args.host_fqdn.clone().unwrap_or_default(),
        ldaps: args.use_ldaps,
    };
    let name = os::host_name();
    let member = ad::join(&args.data, &request, &name, &args.user, &password)?;
    let known = known(&args.data);
    let text = format_args!("{}joined {}{known}", render_member(&member), member.domain);
    args.output.print(&described(&member), text)
}

/// Returns a membership for programs.
fn described(member: &Member) -> Value {
    json!({
        "domain": member.domain,
        "realm": member.realm,
        "computer": member.computer,
        "account": member.account,
        "host": member.host,
    })
}

fn render_member(member: &Member) -> String {
    let mut out = String::new();
    for (name, value) in [
        ("domain", &member.domain),
        ("realm", &member.realm),
        ("computer", &member.computer),
        ("account", &member.account),
        ("host", &member.host),
    ] {
        out.push_str(&format!("{name:<9} {value}\n"));
    }
    out
}

/// Asks a running server to read the membership again. Returns what to add to the command's output.
fn known(data: &Path) -> String {
    match control_socket::send_request(data, RELOAD) {
        Ok(said) => format!("; {said}"),
        Err(_) => ", from the server's next start on".to_owned(),
    }
}
