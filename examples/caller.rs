//! A caller: invokes a service of a device over HTTP and prints the outcome.
//!
//!     cargo run --example caller -- http://127.0.0.1:8080 "$SWITCHBOARD_API_KEY" toy-1 wave

use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, key, device, service] = arguments.as_slice() else {
        return Err("usage: caller URL API_KEY DEVICE SERVICE".into());
    };
    let request = reqwest::Client::new()
        .post(format!("{server}/v1/devices/{device}/calls"))
        .bearer_auth(key)
        .json(&json!({"service": service, "params": {}}));
    let answer: Value = request.send().await?.json().await?;
    println!("{answer:#}");
    Ok(())
}
