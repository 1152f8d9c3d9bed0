//! Cancellation of requests.

use std::sync::Arc;

use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::{
    fake_provider::{Step, event, head, text_chunk},
    fixture::{Fixture, REPLY_TIMEOUT, request},
};

#[tokio::test]
async fn dropped_request_closes_the_connection() {
    let scripts = [
        vec![head(), event(&text_chunk("a")), Step::Hold],
        vec![head(), Step::Hold],
        vec![Step::Hold],
    ];
    for (number, steps) in scripts.into_iter().enumerate() {
        let sends_text = number == 0;
        let fixture = Fixture::start(vec![vec![steps]]).await;
        let texts = Arc::new(Semaphore::new(0));
        let (providers, counter) = (fixture.providers.clone(), Arc::clone(&texts));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut sink = |_: &str| counter.add_permits(1);
            let deadline = Instant::now() + REPLY_TIMEOUT;
            let request = request();
            providers.complete(&request, deadline, &mut sink).await
        });
        if sends_text {
            let texts = timeout(REPLY_TIMEOUT, texts.acquire()).await;
            texts.expect("a word").unwrap().forget();
        } else {
            let requests = async {
                while fixture.request_counts() == [0] {
                    tokio::task::yield_now().await;
                }
            };
            timeout(REPLY_TIMEOUT, requests).await.expect("a request");
        }
        tasks.shutdown().await;
        // The provider observes that the connection is closed.
        let disconnected = timeout(REPLY_TIMEOUT, fixture.fakes[0].disconnected.acquire()).await;
        disconnected.expect("a closed connection").unwrap().forget();
    }
}
