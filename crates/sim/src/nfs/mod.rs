//! The NFSv3 surface as a subject: operations become calls of the test client, and its replies answers.

pub mod client;
pub mod persistent;
pub mod repeat;
pub mod server;
pub mod story;
