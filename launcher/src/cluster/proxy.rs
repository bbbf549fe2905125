//! Which proxy, if any, stands before the API server. Pure: the kubeconfig's
//! word counts first, then the environment's, as for kubectl and curl; a server
//! that `NO_PROXY` names, and the loopback, are reached without one.

use std::net::IpAddr;

use http::Uri;

/// Why a proxy cannot be used; the text names variable or field, and value.
#[derive(Debug, thiserror::Error)]
#[error("{from} {value:?}: {rule}")]
pub struct BadProxy {
    from: String,
    value: String,
    rule: &'static str,
}

/// The proxy for `server`.
///
/// # Errors
/// When the one that is named is no HTTP proxy's URL.
pub fn decide(
    server: &Uri,
    kubeconfig: Option<&str>,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Option<Uri>, BadProxy> {
    if let Some(url) = kubeconfig.filter(|url| !url.is_empty()) {
        return parse("proxy-url of the kubeconfig", url).map(Some);
    }
    let get = |name: &str| {
        [name.to_owned(), name.to_lowercase()]
            .into_iter()
            .find_map(|name| Some((environment(&name).filter(|v| !v.trim().is_empty())?, name)))
    };
    let of_scheme = match server.scheme_str() {
        Some("http") => "HTTP_PROXY",
        _ => "HTTPS_PROXY",
    };
    let Some((url, name)) = get(of_scheme).or_else(|| get("ALL_PROXY")) else {
        return Ok(None);
    };
    let exceptions = get("NO_PROXY").map_or_else(String::new, |(value, _)| value);
    if is_direct(server, &exceptions) {
        return Ok(None);
    }
    parse(&name, &url).map(Some)
}

/// A proxy's URL for messages: never its password.
pub fn shown(proxy: &Uri) -> String {
    let authority = proxy.authority().map_or("", |a| a.as_str());
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{}://{host}", proxy.scheme_str().unwrap_or("http"))
}

fn parse(from: &str, url: &str) -> Result<Uri, BadProxy> {
    let wrong = |rule| BadProxy {
        from: from.to_owned(),
        value: url.rsplit('@').next().unwrap_or_default().to_owned(),
        rule,
    };
    let url = url.trim();
    // As curl and Go take it.
    let whole = if url.contains("://") {
        url.to_owned()
    } else {
        format!("http://{url}")
    };
    let uri: Uri = whole
        .parse()
        .map_err(|_| wrong("must be http://HOST:PORT or https://HOST:PORT"))?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(uri),
        Some("socks5" | "socks5h" | "socks4") => Err(wrong(
            "a SOCKS proxy is not supported; give an http:// proxy",
        )),
        _ => Err(wrong("must be http://HOST:PORT or https://HOST:PORT")),
    }
}

/// Whether `server` is the loopback, or one of `NO_PROXY`'s.
fn is_direct(server: &Uri, exceptions: &str) -> bool {
    let host = server.host().unwrap_or_default();
    let host = host
        .trim_matches(['[', ']'])
        .trim_end_matches('.')
        .to_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|a| a.is_loopback()) {
        return true;
    }
    let port = server.port_u16().unwrap_or(match server.scheme_str() {
        Some("http") => 80,
        _ => 443,
    });
    exceptions
        .split([',', ' '])
        .map(|entry| entry.trim().to_lowercase())
        .filter(|entry| !entry.is_empty())
        .any(|entry| matches(&entry, &host, address, port))
}

fn matches(entry: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if let (Some((network, bits)), Some(address)) = (entry.split_once('/'), address) {
        return contains(network, bits, address);
    }
    let (name, of_port) = split_port(entry);
    if of_port.is_some_and(|of_port| of_port != port) {
        return false;
    }
    let name = name.trim_matches(['[', ']']).trim_end_matches('.');
    if let Some(address) = address {
        return name.parse() == Ok(address);
    }
    // `.example.com` and `*.example.com` are what is below it, `example.com` is both.
    let below = name.strip_prefix('*').unwrap_or(name);
    if let Some(domain) = below.strip_prefix('.') {
        return is_below(host, domain);
    }
    host == name || is_below(host, name)
}

fn is_below(host: &str, domain: &str) -> bool {
    !domain.is_empty()
        && host
            .strip_suffix(domain)
            .is_some_and(|rest| rest.ends_with('.') && rest.len() > 1)
}

/// `host:port`, `[v6]:port`, or one without a port; a bare v6 address has none.
fn split_port(entry: &str) -> (&str, Option<u16>) {
    if entry.parse::<IpAddr>().is_ok() {
        return (entry, None);
    }
    match entry.rsplit_once(':') {
        Some((name, port)) => match port.parse() {
            Ok(port) => (name, Some(port)),
            Err(_) => (entry, None),
        },
        None => (entry, None),
    }
}

fn contains(network: &str, bits: &str, address: IpAddr) -> bool {
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else {
        return false;
    };
    let (network, address, width) = match (network, address) {
        (IpAddr::V4(n), IpAddr::V4(a)) => (u128::from(n.to_bits()), u128::from(a.to_bits()), 32),
        (IpAddr::V6(n), IpAddr::V6(a)) => (n.to_bits(), a.to_bits(), 128),
        _ => return false,
    };
    let different = network ^ address;
    bits <= width && (bits == 0 || different >> (width - bits) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(server: &str, variables: &[(&str, &str)]) -> Option<String> {
        let server = server.parse().unwrap();
        let get = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        decide(&server, None, get)
            .unwrap()
            .map(|uri| uri.to_string())
    }

    const PROXY: (&str, &str) = ("HTTPS_PROXY", "http://proxy:3128");

    #[test]
    fn each_variable_counts_for_its_scheme_and_the_upper_case_one_first() {
        let proxy = Some("http://proxy:3128/".to_owned());
        assert_eq!(decided("https://api:6443", &[PROXY]), proxy);
        assert_eq!(decided("http://api:8080", &[PROXY]), None);
        assert_eq!(
            decided("http://api", &[("http_proxy", "proxy:3128")]),
            proxy
        );
        assert_eq!(
            decided("https://api", &[("ALL_PROXY", "proxy:3128")]),
            proxy
        );
        let both = [("https_proxy", "http://other:1"), PROXY];
        assert_eq!(decided("https://api", &both), proxy);
        assert_eq!(decided("https://api", &[("HTTPS_PROXY", "")]), None);
    }

    #[test]
    fn the_kubeconfigs_proxy_counts_before_all_variables() {
        let server = "https://127.0.0.1:6443".parse().unwrap();
        let all = |_: &str| Some("*".to_owned());
        let found = decide(&server, Some("http://tunnel:1"), all).unwrap();
        assert_eq!(found.unwrap().to_string(), "http://tunnel:1/");
    }

    #[test]
    fn no_proxy_is_about_the_server_and_not_about_the_proxy() {
        for (server, exceptions, direct) in [
            ("https://api.example.com:6443", "example.com", true),
            ("https://example.com:6443", "example.com", true),
            ("https://api.example.com:6443", ".example.com", true),
            ("https://api.example.com:6443", "*.example.com", true),
            ("https://example.com:6443", ".example.com", false),
            ("https://badexample.com:6443", "example.com", false),
            ("https://API.Example.COM:6443", "api.example.com", true),
            ("https://api:6443", "api:6443", true),
            ("https://api:6443", "api:443", false),
            ("https://api", "api:443", true),
            ("https://10.1.2.3:6443", "10.0.0.0/8", true),
            ("https://11.1.2.3:6443", "10.0.0.0/8", false),
            ("https://10.1.2.3:6443", "0.0.0.0/0", true),
            ("https://10.1.2.3:6443", "10.1.2.3", true),
            ("https://10.1.2.3:6443", "10.1.2.3:6443", true),
            ("https://10.1.2.3:6443", "10.1.2.30", false),
            ("https://[fd00::1]:6443", "fd00::/16", true),
            ("https://[fd00::1]:6443", "[fd00::1]:6443", true),
            ("https://[fd00::1]:6443", "fd00::2", false),
            ("https://api:6443", "*", true),
            ("https://api:6443", "other, ,,api,", true),
            ("https://api:6443", "proxy", false),
            ("https://localhost:6443", "", true),
            ("https://127.0.0.9:6443", "", true),
            ("https://[::1]:6443", "", true),
        ] {
            let found = decided(server, &[PROXY, ("no_proxy", exceptions)]);
            assert_eq!(
                found.is_none(),
                direct,
                "{server} with NO_PROXY={exceptions}"
            );
        }
    }

    #[test]
    fn what_is_no_http_proxy_is_refused_without_its_password() {
        let server = "https://api:6443".parse().unwrap();
        for bad in [
            "socks5://user:word@proxy:1",
            "ftp://proxy",
            "http://",
            "http://a b",
        ] {
            let problem = decide(&server, Some(bad), |_| None)
                .unwrap_err()
                .to_string();
            assert!(
                problem.contains("proxy-url") && !problem.contains("word"),
                "{problem}"
            );
        }
        let uri = "http://user:word@proxy:3128".parse().unwrap();
        assert_eq!(shown(&uri), "http://proxy:3128");
    }
}
