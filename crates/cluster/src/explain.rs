//! Reasons: why an aggregate is not as it is wanted.

use crate::rows::{Aggregate, Role, View};

/// Returns the reason why an aggregate has no owner, no standby or another owner than it is to
/// have; `None` if everything is as wanted.
pub fn why(view: &View, aggregate: &Aggregate) -> Option<String> {
    if aggregate.deleting {
        return Some("it is being deleted".to_owned());
    }
    let reasons = [
        owner(view, aggregate),
        target(view, aggregate),
        standby(view, aggregate),
    ];
    let reasons: Vec<String> = reasons.into_iter().flatten().collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

fn owner(view: &View, aggregate: &Aggregate) -> Option<String> {
    let wanted = aggregate.nodes.owner.as_deref();
    if let Some((real, _)) = view.real_owner(aggregate) {
        let other = wanted != Some(real.name.as_str());
        return other.then(|| format!("{} has taken it over", real.name));
    }
    let Some(wanted) = wanted else {
        let text = "no owner: no node is up, not drained, and has the memory for it";
        return Some(text.to_owned());
    };
    let Some(node) = view.nodes.get(wanted) else {
        return Some(format!("its owner {wanted} is no node of the cluster"));
    };
    if !node.is_up() {
        let silent = node.silent.as_secs();
        let gone = format!("its owner {wanted} has sent no heartbeat for {silent} s");
        let standby = aggregate.nodes.standby.as_deref();
        let child = standby.and_then(|name| view.child(name, &aggregate.name));
        return Some(match child {
            Some(child) if child.role == Role::Standby => format!(
                "{gone}, and {} stands by: it takes over unless the aggregate is served there",
                standby.unwrap_or_default()
            ),
            _ => gone,
        });
    }
    Some(match node.children.get(&aggregate.name) {
        None => format!("{wanted} is to start its server"),
        Some(child) => match &child.fault {
            Some(fault) => format!("its server on {wanted} does not serve: {fault}"),
            None => format!("its server on {wanted} starts"),
        },
    })
}

fn target(view: &View, aggregate: &Aggregate) -> Option<String> {
    let to = &aggregate.nodes.target.as_ref()?.node;
    let child = view.child(to, &aggregate.name);
    let ready = child.is_some_and(|child| child.role == Role::Standby);
    Some(if ready {
        format!("it moves to {to}, which stands by")
    } else {
        format!("it moves to {to} once a server stands by there")
    })
}

fn standby(view: &View, aggregate: &Aggregate) -> Option<String> {
    if aggregate.nodes.epoch == 0 {
        return None;
    }
    let Some(name) = aggregate.nodes.standby.as_deref() else {
        let text = "no standby: no other node is up, not drained, and has the memory for it";
        return Some(text.to_owned());
    };
    let Some(node) = view.nodes.get(name).filter(|node| node.is_up()) else {
        return Some(format!("its standby {name} has sent no heartbeat"));
    };
    match node.children.get(&aggregate.name) {
        Some(child) if child.role != Role::Starting => None,
        Some(child) => Some(match &child.fault {
            Some(fault) => format!("its server on {name} does not stand by: {fault}"),
            None => format!("its server on {name} starts"),
        }),
        None => Some(format!("{name} is to start its server")),
    }
}
