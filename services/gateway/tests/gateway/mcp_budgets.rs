//! Requests without room in a budget: the error names the budget and the delay before a retry.

use serde_json::{Value, json};
use switchboard_runtime::budget::{Kind, Owner, Permit};

use crate::{
    mcp_client::{DEVICE, exchange, modern},
    mcp_resources::picture,
    test_gateway::TestGateway,
};

/// Takes the share of the organisation in a budget of the gateway.
fn take_share(gateway: &TestGateway, budget: &'static str) -> Permit {
    // The gateway has created it; further values are ignored.
    let budget = gateway.budgets.slots(budget, 1, Kind::quarter_of(1));
    let owner = Owner::Org(gateway.org.uuid());
    budget.try_acquire(owner, budget.share()).unwrap()
}

/// The error of a request.
async fn error(gateway: &TestGateway, path: &str, method: &str, params: Value) -> Value {
    let refused = exchange(modern(gateway, path, method, params)).await;
    refused.last()["error"].clone()
}

#[track_caller]
fn check(error: &Value, budget: &str) {
    assert_eq!(error["code"], -32000, "{error}");
    let data = json!({"budget": budget, "retry_after_ms": 1_000});
    assert_eq!(error["data"], data, "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(budget), "{error}");
}

#[tokio::test]
async fn request_without_room_in_a_budget_is_refused_by_name() {
    let gateway = TestGateway::start().await;
    gateway.connect("living.room:lamp").await;
    picture(&gateway, "test://dot").await;
    let pictures = take_share(&gateway, "mcp_pictures");
    let searches = take_share(&gateway, "mcp_device_searches");
    let dot = json!({"uri": "test://dot"});
    let tool = json!({"name": "living-0a1b2c3d__echo", "arguments": {}});
    let (read, called) = tokio::join!(
        error(&gateway, DEVICE, "resources/read", dot.clone()),
        error(&gateway, "/mcp", "tools/call", tool.clone()),
    );
    check(&read, "mcp_pictures");
    check(&called, "mcp_device_searches");

    drop((pictures, searches));
    let read = exchange(modern(&gateway, DEVICE, "resources/read", dot)).await;
    assert_eq!(read.result()["contents"][0]["blob"], "iVBORw==");
    let called = exchange(modern(&gateway, "/mcp", "tools/call", tool)).await;
    assert_eq!(called.error_code(), -32602);
}
