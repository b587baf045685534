//! `protocols/cifs/shares`: volumes as shares of SMB.

use weir_ontap::cluster::{Change, Share};
use weir_ontap::fields::Way;
use weir_ontap::fields::share::{Draft, TABLE, of_path, usual};

use super::body::Fields;
use super::refusal::{HandlerResult, Refusal};
use super::resource;
use super::surface::{CallContext, Reply};
use crate::route::Verb;

/// Handles requests to `protocols/cifs/shares`.
pub fn shares(a: &CallContext<'_>, verb: Verb, path: &[&str]) -> HandlerResult<Reply> {
    let find = || resource::found(a, &TABLE, a.cluster.shares());
    match (verb, path) {
        (Verb::Get, [] | [_, _]) => {
            resource::get(a, &TABLE, !path.is_empty(), |_| a.cluster.shares())
        }
        (Verb::Post, []) => create(a),
        (Verb::Patch, [_, _]) => {
            a.only(&[])?;
            let mut fields = Fields::read(&a.call.body)?;
            let (mut draft, like) = (Draft::default(), find()?);
            resource::read(a, &TABLE, &mut fields, Way::Modify, &mut draft, Some(&like))?;
            a.done(None)
        }
        (Verb::Delete, [_, _]) => {
            a.only(&[])?;
            change(a, find()?, None)?;
            a.done(None)
        }
        _ => Err(Refusal::no_api()),
    }
}

fn change(a: &CallContext<'_>, share: Share, name: Option<String>) -> HandlerResult<()> {
    let volume = share.volume;
    let change = Change::Share { volume, name };
    a.cluster.change(change).map_err(Refusal::from_failure)
}

fn create(a: &CallContext<'_>) -> HandlerResult<Reply> {
    a.only(&[])?;
    let mut fields = Fields::read(&a.call.body)?;
    let text = |name: &str| a.call.body.get(name).and_then(|value| value.as_str());
    let (name, path) = (text("name"), text("path"));
    let none = weir_relations::model::Path::local("", "");
    let like = usual(none, name.unwrap_or_default(), path.unwrap_or_default());
    let mut draft = Draft::default();
    resource::read(a, &TABLE, &mut fields, Way::Create, &mut draft, Some(&like))?;
    let svm = draft.svm.ok_or_else(|| Refusal::required("svm.name"))?;
    let name = draft.name.ok_or_else(|| Refusal::required("name"))?;
    let path = draft.path.ok_or_else(|| Refusal::required("path"))?;
    let same = |s: &Share| s.volume.vserver == svm && s.name.eq_ignore_ascii_case(&name);
    if a.cluster.shares().iter().any(same) {
        let why = format!("Share \"{name}\" already exists in SVM \"{svm}\".");
        return Err(Refusal::duplicate(&why));
    }
    let volume = of_path(a.cluster, &svm, &path).map_err(Refusal::from_failure)?;
    change(a, usual(volume, &name, &path), Some(name.clone()))?;
    let made = a.cluster.shares().into_iter().find(|s| same(s));
    resource::made(a, &TABLE, made)
}
