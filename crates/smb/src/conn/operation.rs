//! Numbers of commands in statistics, after those of NFS operations ([`weir_vfs::stats`]).

use weir_vfs::stats::{REFUSED_CALL, SMB};

/// Names of the commands, by number (MS-SMB2 §2.2.1.2).
const COMMANDS: [&str; 19] = [
    "NEGOTIATE",
    "SESSION_SETUP",
    "LOGOFF",
    "TREE_CONNECT",
    "TREE_DISCONNECT",
    "CREATE",
    "CLOSE",
    "FLUSH",
    "READ",
    "WRITE",
    "LOCK",
    "IOCTL",
    "CANCEL",
    "ECHO",
    "QUERY_DIRECTORY",
    "CHANGE_NOTIFY",
    "QUERY_INFO",
    "SET_INFO",
    "OPLOCK_BREAK",
];

const _: () = assert!(SMB as usize + COMMANDS.len() <= REFUSED_CALL as usize);

/// The number that a command is counted by; `None` for what is no command.
pub(crate) fn number(command: u16) -> Option<u8> {
    COMMANDS.get(usize::from(command))?;
    SMB.checked_add(u8::try_from(command).ok()?)
}

/// The protocol and the name of an operation by its number, as metrics call them.
pub fn name(number: u8) -> Option<(&'static str, &'static str)> {
    let command = number.checked_sub(SMB)?;
    let name = COMMANDS.get(usize::from(command))?;
    Some(("smb", name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::header::command;

    #[test]
    fn every_command_has_its_name() {
        for (command, expected) in [
            (command::NEGOTIATE, "NEGOTIATE"),
            (command::READ, "READ"),
            (command::SET_INFO, "SET_INFO"),
            (command::OPLOCK_BREAK, "OPLOCK_BREAK"),
        ] {
            assert_eq!(number(command).and_then(name), Some(("smb", expected)));
        }
        assert_eq!(
            (number(19), name(SMB - 1), name(SMB + 19)),
            (None, None, None)
        );
    }
}
