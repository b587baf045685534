//! The NFSv3 surface as a subject: operations become calls of the test client, and its replies
//! answers; and clients of NFSv4.1.

pub mod client;
mod client4;
pub mod delegations;
pub mod persistent;
pub mod repeat;
pub mod server;
pub mod story;
