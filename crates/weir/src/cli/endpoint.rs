//! Addresses to listen on, as options give them.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Parses an address to listen on, for clap.
///
/// # Errors
/// It is none.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "it must be an IP address of this machine with a port of 0 to 65535, such as 0.0.0.0:2049 or [::1]:2049"
            .to_owned()
    })
}

/// Address that the API listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiAddress {
    /// The API is not served.
    Off,
    /// IP address and port.
    At(SocketAddr),
}

impl FromStr for ApiAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ApiAddress, String> {
        match text {
            "off" => Ok(ApiAddress::Off),
            _ => address(text)
                .map(ApiAddress::At)
                .map_err(|why| format!("{why}, or off")),
        }
    }
}

impl fmt::Display for ApiAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApiAddress::Off => f.write_str("off"),
            ApiAddress::At(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!("off".parse(), Ok(ApiAddress::Off));
        let at = ApiAddress::At("127.0.0.1:8049".parse().unwrap());
        assert_eq!("127.0.0.1:8049".parse(), Ok(at));
        assert_eq!(at.to_string(), "127.0.0.1:8049");
        assert!("localhost".parse::<ApiAddress>().is_err());
    }
}
