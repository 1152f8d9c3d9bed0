//! A caller that leaves.
//! Never: a provider that goes on speaking to nobody.

use std::sync::Arc;

use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::{
    provider::{Act, event, head, says},
    stage::{LONG, Stage, hello},
};

#[tokio::test]
async fn a_request_ends_upstream_when_its_caller_leaves() {
    let scripts = [
        vec![head(), event(&says("a")), Act::Hold],
        vec![head(), Act::Hold],
        vec![Act::Hold],
    ];
    for (number, acts) in scripts.into_iter().enumerate() {
        let speaks = number == 0;
        let stage = Stage::set(vec![vec![acts]]).await;
        let heard = Arc::new(Semaphore::new(0));
        let (providers, ear) = (stage.providers.clone(), Arc::clone(&heard));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut hear = |_: &str| ear.add_permits(1);
            let deadline = Instant::now() + LONG;
            let request = hello();
            providers.complete(&request, deadline, &mut hear).await
        });
        if speaks {
            let heard = timeout(LONG, heard.acquire()).await;
            heard.expect("a word").unwrap().forget();
        } else {
            let asked = async {
                while stage.times_asked() == [0] {
                    tokio::task::yield_now().await;
                }
            };
            timeout(LONG, asked).await.expect("a request");
        }
        tasks.shutdown().await;
        // The other side sees that the connection is closed.
        let left = timeout(LONG, stage.each[0].left.acquire()).await;
        left.expect("a closed connection").unwrap().forget();
    }
}
