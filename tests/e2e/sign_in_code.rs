//! The one-time code of `switchboard up`: it signs one browser of its machine in.

use serde_json::{Value, json};
use switchboard_test_support::data_folder::DataFolder;

#[tokio::test]
async fn one_time_code_begins_one_session_on_this_machine() {
    let folder = DataFolder::new();
    let up = folder.up();
    let console = up.address("console_url");
    let http_url = up.address("http_url");
    let (page, code) = console.split_once("#code=").unwrap();
    assert_eq!(page, format!("{http_url}/console/"));
    let http = reqwest::Client::new();
    let sign_in = async |code: &str, headers: &[(&str, &str)]| {
        let request = http.post(format!("{http_url}/v1/session"));
        let request = request.json(&json!({"code": code}));
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let document: Value = response.json().await.unwrap();
        (status, headers, document)
    };
    // Through a proxy that serves other machines, and a page of another host.
    let elsewhere = ("x-forwarded-for", "192.0.2.1");
    let (status, _, problem) = sign_in(code, &[elsewhere]).await;
    assert_eq!(
        (status, &problem["type"]),
        (400, &json!("/problems/insecure_session"))
    );
    let https = ("x-forwarded-proto", "https");
    let refused = (401, &json!("/problems/sign_in_code_refused"));
    let (status, _, problem) = sign_in(code, &[elsewhere, https]).await;
    assert_eq!((status, &problem["type"]), refused);
    let (status, _, problem) = sign_in(code, &[("host", "evil.example")]).await;
    assert_eq!(
        (status, &problem["type"]),
        (400, &json!("/problems/insecure_session"))
    );
    let (status, _, problem) = sign_in("wrong", &[]).await;
    assert_eq!((status, &problem["type"]), refused);
    let (status, headers, session) = sign_in(code, &[]).await;
    assert_eq!(status, 200, "{session}");
    assert_eq!(session["org_id"], up.ready["org_id"]);
    let cookie = headers["set-cookie"].to_str().unwrap();
    assert!(cookie.starts_with("switchboard_session="), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    for path in ["/v1/devices", "/v1/org"] {
        let request = http
            .get(format!("{http_url}{path}"))
            .header("cookie", cookie);
        let page = request.header("x-switchboard-console", "1").send();
        assert_eq!(page.await.unwrap().status().as_u16(), 200, "{path}");
    }
    let (status, _, problem) = sign_in(code, &[]).await;
    assert_eq!((status, &problem["type"]), refused);
    // The same who asks on the command line.
    let asked = folder.run(&["whoami"]);
    assert_eq!(asked.status.code(), Some(0), "{asked:?}");
    let asked: Value = serde_json::from_slice(&asked.stdout).unwrap();
    assert_eq!(asked["actor"], session["actor"]);
}
