//! Requests to devices behind a NATS server, with the client library that a service would use.
//! Never: knowledge of how the devices answer.

use anyhow::ensure;
use async_nats::{Client, ConnectOptions, Subject};
use bytes::Bytes;

use super::{
    CallerOptions, PAYLOAD_BYTES,
    closed_loop::{ANSWER_WITHIN, Caller, turn},
    device_name, payload,
};

/// One connection, many requests.
pub(super) struct NatsCaller {
    client: Client,
    subjects: Vec<Subject>,
    payload: Bytes,
}

impl NatsCaller {
    pub(super) async fn start(options: CallerOptions) -> anyhow::Result<Self> {
        let client = ConnectOptions::new()
            .request_timeout(Some(ANSWER_WITHIN))
            .connect(options.address.to_string())
            .await?;
        let subjects = (0..options.devices)
            .map(|index| device_name(index).into())
            .collect();
        Ok(Self {
            client,
            subjects,
            payload: payload().into(),
        })
    }
}

impl Caller for NatsCaller {
    async fn call(&self, worker: usize, sequence: u64) -> anyhow::Result<()> {
        let device = turn(worker, sequence, u32::try_from(self.subjects.len())?);
        let subject = self.subjects[device as usize].clone();
        let answer = self.client.request(subject, self.payload.clone()).await?;
        ensure!(
            answer.payload.len() == PAYLOAD_BYTES,
            "an answer of the wrong length"
        );
        Ok(())
    }
}
