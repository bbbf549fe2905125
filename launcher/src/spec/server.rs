//! Where a host dials back, as every program reads it. RFC 3986 and the WHATWG
//! do not agree on users, backslashes, empty ports and addresses that are
//! spelled in another way than the usual one: of such a URL nobody can say whom a
//! NetworkPolicy is to let through, so it is none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::uri::Authority;

/// The server that a URL names, and its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) host: Host,
    pub(crate) port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    Name(String),
    Address(IpAddr),
}

impl Server {
    /// The server of an http:// or https:// URL.
    pub(crate) fn of(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let usual = match scheme.to_ascii_lowercase().as_str() {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let authority: Authority = rest.split(['/', '?', '#']).next()?.parse().ok()?;
        let host = authority.host();
        // With a user before it, it is more than this.
        let port = match authority.as_str().strip_prefix(host)? {
            "" => usual,
            port => number(port.strip_prefix(':')?)?,
        };
        let host = Host::of(host)?;
        Some(Self { host, port })
    }
}

impl Host {
    fn of(host: &str) -> Option<Self> {
        if let Some(v6) = host.strip_prefix('[') {
            let address: Ipv6Addr = v6.strip_suffix(']')?.parse().ok()?;
            return Some(Self::Address(address.into()));
        }
        if let Ok(address) = host.parse::<Ipv4Addr>() {
            return Some(Self::Address(address.into()));
        }
        let labels = host.strip_suffix('.').unwrap_or(host);
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let right = |label: &str| !label.is_empty() && label.chars().all(plain);
        // 10.1, 0x7f.1 and 2130706433 are addresses too, to some.
        let last = labels.rsplit('.').next()?.to_ascii_lowercase();
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        let hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
        let is_number = digits(&last) || last.strip_prefix("0x").is_some_and(hex);
        let name = labels.split('.').all(right) && !is_number;
        name.then(|| Self::Name(host.to_owned()))
    }
}

fn number(port: &str) -> Option<u16> {
    let digits = port.bytes().all(|b| b.is_ascii_digit());
    port.parse().ok().filter(|port| digits && *port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_what_every_program_dials() {
        for (url, host, port) in [
            ("http://s", "s", 80),
            ("https://s", "s", 443),
            ("HTTPS://S.Example./", "S.Example.", 443),
            (
                "https://a-b.my_server.example:8443/x?y=@#:80",
                "a-b.my_server.example",
                8443,
            ),
            ("http://s?x=/@y:1", "s", 80),
            ("http://s#@y", "s", 80),
            ("http://s:0080", "s", 80),
            ("http://1.example", "1.example", 80),
            ("http://s/a\\b", "s", 80),
        ] {
            let host = Host::Name(host.to_owned());
            assert_eq!(Server::of(url), Some(Server { host, port }), "{url}");
        }
        for (url, address, port) in [
            ("http://10.1.2.3", "10.1.2.3", 80),
            ("HTTP://10.1.2.3", "10.1.2.3", 80),
            ("https://10.1.2.3:65535/x", "10.1.2.3", 65535),
            ("https://[2001:DB8::1]", "2001:db8::1", 443),
            ("https://[2001:db8::1]:8443/x", "2001:db8::1", 8443),
            ("https://[::ffff:10.1.2.3]", "::ffff:10.1.2.3", 443),
        ] {
            let host = Host::Address(address.parse().unwrap());
            assert_eq!(Server::of(url), Some(Server { host, port }), "{url}");
        }
    }

    #[test]
    fn what_programs_read_differently_is_no_server() {
        for url in [
            // One reads a user, or a path, where the other reads the server.
            "http://10.1.2.3@s",
            "http://u:p@10.1.2.3",
            "http://@10.1.2.3",
            "http://10.1.2.3\\@s",
            "http://10.1.2.3\\x",
            "http://s;10.1.2.3",
            "http://s,10.1.2.3",
            "http://%31%30.1.2.3",
            "http:///10.1.2.3",
            "http:10.1.2.3",
            "http:/\\10.1.2.3",
            // Addresses, to some.
            "http://10.1",
            "http://10.1.2.3.",
            "http://10.1.2.03",
            "http://010.1.2.3",
            "http://0x0a.1.2.3",
            "http://10.1.2.0X3",
            "http://1.2.0x",
            "http://167838211",
            "http://s.10",
            "http://256.1.2.3",
            // No address, to some.
            "http://[fe80::1%25eth0]",
            "http://[v1.x]",
            "http://[10.1.2.3]",
            "http://[::1",
            "http://::1",
            "http://[::1]x",
            "http://x[::1]",
            "http://[::1]:80:80",
            // Ports.
            "http://s:",
            "http://s:+80",
            "http://s:-1",
            "http://s:0",
            "http://s:65536",
            "http://s:http",
            "http://:80",
            "http://",
            "http://.",
            "http://a..b",
            "ftp://s",
            "s:80",
        ] {
            assert_eq!(Server::of(url), None, "{url}");
        }
    }
}
