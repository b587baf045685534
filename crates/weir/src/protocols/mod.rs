//! NFS and SMB as the event loops see them, and what they ask of the system.

pub mod callbacks;
pub mod referrals;
pub mod reply_gate;
pub mod resolve;
pub mod rpcbind;
pub mod smb;
pub mod tls;
