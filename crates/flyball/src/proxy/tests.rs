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

/// Connects to `http://api.example.com` through a proxy with this response, and returns its request and the error.
async fn through_proxy(response: &str) -> (String, Result<String, String>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://me:hush@{}", listener.local_addr().unwrap());
    let proxies = Proxies::from_variables(|name| (name == "HTTP_PROXY").then(|| url.clone()));
    let response = response.to_owned();
    let proxy = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_buf(&mut head).await.unwrap();
        }
        stream.write_all(response.as_bytes()).await.unwrap();
        let mut word = [0; 5];
        if stream.read_exact(&mut word).await.is_ok() {
            stream.write_all(&word).await.unwrap();
        }
        String::from_utf8(head).unwrap()
    });
    let connected = Connector::new(proxies).call("http://api.example.com/".parse().unwrap()).await;
    let answer = match connected {
        Err(error) => {
            let causes = std::iter::successors(Some(&*error as &dyn std::error::Error), |error| error.source());
            Err(causes.map(ToString::to_string).collect::<Vec<_>>().join(": "))
        }
        Ok(stream) => {
            let (mut stream, mut answer) = (stream.into_inner(), [0; 5]);
            stream.write_all(b"hello").await.unwrap();
            stream.read_exact(&mut answer).await.unwrap();
            Ok(String::from_utf8_lossy(&answer).into_owned())
        }
    };
    (proxy.await.unwrap(), answer)
}

#[tokio::test]
async fn tunnel_leads_to_the_target() {
    let (request, answer) = through_proxy("HTTP/1.1 200 Connection established\r\n\r\n").await;
    assert_eq!(answer.as_deref(), Ok("hello"));
    assert!(request.starts_with("CONNECT api.example.com:80 HTTP/1.1\r\n"), "{request}");
    let request = request.to_lowercase();
    assert!(request.contains("host: api.example.com:80\r\n"), "{request}");
    assert!(request.contains("proxy-authorization: basic bwu6ahvzaa==\r\n"), "{request}");
}

#[tokio::test]
async fn refused_tunnel_is_reported_with_proxy_status_and_remedy() {
    for (response, expected) in [
        (
            "HTTP/1.1 403 No way\r\ncontent-length: 2\r\n\r\nno",
            "403 Forbidden: have the proxy allow the address, or add",
        ),
        ("HTTP/1.1 407 Auth\r\n\r\n", "407 Proxy Authentication Required: set user and password in its URL"),
        ("HTTP/1.0 502 Bad\r\n\r\n", "502 Bad Gateway: check the address, or add the host to NO_PROXY"),
        ("HTTP/1.1 599 X\r\n\r\n", "it answered 599: have the proxy"),
        ("HTTP/1.1 200 OK\r\n\r\nhello", "it sent unexpected data"),
        ("SSH-2.0\r\n\r\n", "no answer: "),
    ] {
        let error = through_proxy(response).await.1.expect_err(expected);
        assert!(error.starts_with("cannot connect to api.example.com:80 through the proxy 127.0.0.1:"), "{error}");
        assert!(error.contains(" of HTTP_PROXY: ") && error.contains(expected), "{error}");
        assert!(!error.contains("hush"), "{error}");
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
