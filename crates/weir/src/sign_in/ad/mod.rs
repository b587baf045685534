//! Membership of a running server of an Active Directory domain: it accepts tickets of the domain.
//! The membership itself, in files of the data folder, is [`weir_auth::ad`]'s.

pub mod commands;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use parking_lot::Mutex;
use weir_auth::ad::{Failure, KEYTAB, Member, Request, join, leave, read};
use weir_auth::domains::Domains;
use weir_auth::library::Kerberos;
use weir_control::backend::{BackendError, DomainSpec};
use weir_node::backend::DomainMembership;
use weir_node::os;

/// Returns the control plane's error for a failure.
fn refused(failure: Failure) -> BackendError {
    match failure {
        Failure::Refused(why) => BackendError::Precondition(why),
        Failure::Failed(error) => BackendError::Failed(format!("{error:#}")),
    }
}

/// Membership of a running server, which accepts tickets of the domain as soon as it has joined.
pub struct Membership {
    folder: PathBuf,
    /// The server has a keytab of its own (`--krb5-keytab`), which counts.
    fixed: bool,
    domains: Arc<Domains>,
    smb: Arc<weir_smb::Service>,
    nfs: Arc<weir_nfs::Service>,
    /// Held while the membership changes.
    accepting: Mutex<Option<Arc<Kerberos>>>,
}

impl Membership {
    /// Returns the membership of the server with this data folder; [`Membership::reload`] reads it.
    pub fn new(
        folder: &Path,
        fixed: bool,
        domains: Arc<Domains>,
        smb: Arc<weir_smb::Service>,
        nfs: Arc<weir_nfs::Service>,
    ) -> Membership {
        Membership {
            folder: folder.to_owned(),
            fixed,
            domains,
            smb,
            nfs,
            accepting: Mutex::default(),
        }
    }

    /// Reads the files and serves by them; returns the membership that they contain.
    ///
    /// # Errors
    /// The files cannot be read or are damaged, or Kerberos cannot be started.
    pub fn reload(&self) -> Result<Option<Member>> {
        let mut accepting = self.accepting.lock();
        self.serve(&mut accepting)
    }

    fn serve(&self, accepting: &mut Option<Arc<Kerberos>>) -> Result<Option<Member>> {
        let member = read(&self.folder)?;
        if self.fixed {
            return Ok(member);
        }
        if member.is_none() {
            self.smb.accept_tickets(None);
            return Ok(None);
        }
        let kerberos = match &*accepting {
            // The keys are read at each logon.
            Some(kerberos) => Arc::clone(kerberos),
            None => {
                let keys = self.folder.join(KEYTAB);
                Arc::new(Kerberos::start(&keys, os::cores(), &self.domains)?)
            }
        };
        *accepting = Some(Arc::clone(&kerberos));
        self.smb.accept_tickets(Some(Arc::clone(&kerberos) as _));
        self.nfs.accept_contexts(kerberos);
        Ok(member)
    }
}

impl DomainMembership for Membership {
    fn join(&self, spec: &DomainSpec) -> Result<String, BackendError> {
        let mut accepting = self.accepting.lock();
        if self.fixed {
            return Err(BackendError::Precondition(
                "this server was started with --krb5-keytab, whose keys count; start it without to have it join a domain"
                    .to_owned(),
            ));
        }
        let wanted = |before: &Member| before.domain.eq_ignore_ascii_case(&spec.domain);
        let before = read(&self.folder).map_err(|error| refused(error.into()))?;
        if let Some(before) = before.filter(|before| !wanted(before)) {
            return Err(BackendError::Precondition(format!(
                "this server is a member of {}; it leaves that first (weir ad leave)",
                before.domain
            )));
        }
        let request = Request {
            domain: spec.domain.clone(),
            controller: spec.controller.clone(),
            computer: spec.computer.clone(),
            unit: spec.unit.clone(),
            // Not the machine's own name: the machine may itself be a member by that name, with
            // another account.
            host: format!("{}.{}", spec.computer, spec.domain).to_lowercase(),
            ldaps: false,
        };
        let password = spec.password.text();
        let joined = join(
            &self.folder,
            &request,
            &os::host_name(),
            &spec.user,
            password,
        );
        let member = joined.map_err(refused)?;
        self.serve(&mut accepting)
            .map_err(|error| refused(error.into()))?;
        Ok(member.host)
    }

    fn leave(&self, domain: &str) -> Result<(), BackendError> {
        let mut accepting = self.accepting.lock();
        let of = |member: &Member| member.domain.eq_ignore_ascii_case(domain);
        let member = read(&self.folder).map_err(|error| refused(error.into()))?;
        if !member.as_ref().is_some_and(of) {
            return Ok(());
        }
        leave(&self.folder, None).map_err(refused)?;
        self.serve(&mut accepting)
            .map_err(|error| refused(error.into()))?;
        Ok(())
    }
}
