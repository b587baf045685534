//! `protocols/nfs/services`: what is served over NFS, which is the same for all machines.

use weir_ontap::fields::Way;
use weir_ontap::fields::nfs::TABLE;

use super::body::Fields;
use super::refusal::{HandlerResult, Refusal};
use super::resource;
use super::surface::{CallContext, Reply};
use super::svms::svm_of;
use crate::route::Verb;

/// Handles requests to `protocols/nfs/services`. The service is there as soon as its machine is:
/// making it is only refused where it would have to be otherwise.
pub fn nfs_services(a: &CallContext<'_>, verb: Verb, path: &[&str]) -> HandlerResult<Reply> {
    let all = || a.cluster.svms().into_iter().map(|svm| svm.name).collect();
    let read = |like: &String| {
        let mut fields = Fields::read(&a.call.body)?;
        resource::read(a, &TABLE, &mut fields, Way::Modify, &mut (), Some(like))
    };
    match (verb, path) {
        (Verb::Get, [] | [_]) => resource::get(a, &TABLE, !path.is_empty(), |_| all()),
        (Verb::Post, []) => {
            a.only(&[])?;
            let of = svm_of(a, &mut Fields::read(&a.call.body)?)?;
            read(&of)?;
            resource::made(a, &TABLE, Some(of))
        }
        (Verb::Patch, [_]) => {
            a.only(&[])?;
            read(&resource::found(a, &TABLE, all())?)?;
            a.done(None)
        }
        (Verb::Delete, [_]) => {
            resource::found(a, &TABLE, all())?;
            Err(Refusal::not_here(
                "svm.uuid",
                "NFS is served as long as the server runs",
            ))
        }
        _ => Err(Refusal::no_api()),
    }
}
