//! Requests to devices of a NATS server, with the client library that a service would use.

use anyhow::ensure;
use async_nats::{Client, ConnectOptions, Subject};
use bytes::Bytes;

use super::{
    CallerOptions, PAYLOAD_BYTES,
    closed_loop::{Caller, RESPONSE_TIMEOUT, select_device},
    device_name, payload,
};

/// A caller that sends all requests over one connection.
pub(super) struct NatsCaller {
    client: Client,
    subjects: Vec<Subject>,
    payload: Bytes,
}

impl NatsCaller {
    pub(super) async fn start(options: CallerOptions) -> anyhow::Result<Self> {
        let client = ConnectOptions::new()
            .request_timeout(Some(RESPONSE_TIMEOUT))
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
        let device = select_device(worker, sequence, u32::try_from(self.subjects.len())?);
        let subject = self.subjects[device as usize].clone();
        let response = self.client.request(subject, self.payload.clone()).await?;
        ensure!(
            response.payload.len() == PAYLOAD_BYTES,
            "the response has the wrong length"
        );
        Ok(())
    }
}
