//! Remote procedure calls over named pipes: accounts, policies, the workstation service.

pub(crate) mod lsa;
pub(crate) mod pipe;
pub(crate) mod rpc;
pub(crate) mod samr;
pub(crate) mod samr_info;
pub(crate) mod wkssvc;
