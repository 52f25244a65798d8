use super::*;

fn chosen(variables: &[(&str, &str)], address: &str) -> Result<Option<String>, String> {
    let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let proxies = Proxies::from_variables(find);
    match proxies.of(&address.parse().unwrap()) {
        Ok(proxy) => Ok(proxy.map(ToString::to_string)),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn environment_selects_the_proxy_of_each_address() {
    let (https, http, cluster) = ("https://example.com", "http://example.com", "https://10.96.0.1");
    for (variables, address, expected) in [
        (&[][..], https, None),
        (&[("HTTPS_PROXY", "http://p:1")], https, Some("p:1")),
        (&[("HTTPS_PROXY", "http://p:1")], http, None),
        (&[("https_proxy", "p:1")], https, Some("p:1")),
        (&[("HTTPS_PROXY", " "), ("https_proxy", "http://p:1/")], https, Some("p:1")),
        (&[("HTTPS_PROXY", "http://p:1"), ("https_proxy", "http://q:1")], https, Some("p:1")),
        (&[("HTTP_PROXY", "http://p:1")], http, Some("p:1")),
        (&[("HTTP_PROXY", "http://p:1")], https, None),
        (&[("HTTP_PROXY", "http://p:1"), ("REQUEST_METHOD", "GET")], http, None),
        (&[("ALL_PROXY", "http://p:1")], http, Some("p:1")),
        (&[("all_proxy", "http://p:1")], https, Some("p:1")),
        (&[("ALL_PROXY", "http://p:1"), ("HTTPS_PROXY", "http://q:1")], https, Some("q:1")),
        (&[("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", "10.0.0.0/8,.svc")], cluster, None),
        (&[("HTTPS_PROXY", "http://p:1"), ("no_proxy", "10.0.0.0/8")], cluster, None),
        (&[("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", "11.0.0.0/8")], cluster, Some("p:1")),
        (&[("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", "example.com:443")], https, None),
        (&[("HTTPS_PROXY", "http://p:1")], "https://127.0.0.1:6443", None),
        (&[("ALL_PROXY", "http://p:1")], "http://localhost:8080", None),
        (&[("HTTPS_PROXY", "socks5://p:1")], "https://[::1]:6443", None),
    ] {
        assert_eq!(chosen(variables, address), Ok(expected.map(str::to_owned)), "{variables:?} {address}");
    }
}

#[test]
fn invalid_proxy_is_reported_with_its_variable() {
    for (value, words) in [
        ("socks5://u:secret@p:1", "HTTPS_PROXY: invalid proxy \"socks5://p:1\": only plain HTTP proxies"),
        ("https://p:1", "HTTPS_PROXY: invalid proxy \"https://p:1\""),
        ("http://u:secret@", "not a URL: use a URL such as http://proxy.example.com:3128"),
        ("http://a b", "not a URL"),
    ] {
        let error = chosen(&[("HTTPS_PROXY", value)], "https://example.com").unwrap_err();
        assert!(error.contains(words) && !error.contains("secret"), "{error}");
    }
}

#[test]
fn percent_signs_in_passwords_are_decoded_once() {
    for (text, expected) in [("p%40ss%3Aw", "p@ss:w"), ("%2540", "%40"), ("100%", "100%"), ("%zz%4", "%zz%4")] {
        assert_eq!(percent_decoded(text), expected.as_bytes(), "{text}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn idle_connection_uses_tcp_keepalive() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let url: Uri = format!("http://127.0.0.1:{port}/").parse().unwrap();
    let _connection = Connector::new(Proxies::default()).call(url).await.unwrap();
    // The kernel's state of each socket: after the peer's address a timer, and its remaining time.
    let sockets = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let mut sockets = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let socket = sockets.find(|fields| fields[2].ends_with(&format!(":{port:04X}"))).unwrap();
    let (timer, due) = socket[5].split_once(':').unwrap();
    assert_eq!(timer, "02", "it is the keepalive timer: {socket:?}");
    let hundredths = u64::from_str_radix(due, 16).unwrap();
    assert!(hundredths <= 100 * KEEPALIVE_PERIOD.as_secs(), "{socket:?}");
}
