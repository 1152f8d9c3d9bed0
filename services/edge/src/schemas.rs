//! The schemas of devices, compiled and checked off the runtime's workers.
//!
//! Invariant: what may take longer than 0.5 ms runs in a thread of the blocking pool, as many at a
//! time as the budgets permit, and organisations take turns.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    ops::Deref,
    sync::Arc,
    thread,
    time::Duration,
};

use serde_json::value::RawValue;
use switchboard_protocol::{
    id::OrgId,
    schema::{
        Compilation, Digest, Interner, MeasuredServices, RegisterError, Registration, SchemaLimits,
    },
};
use switchboard_runtime::{
    budget::{Budget, Budgets, Exhausted, Kind, Owner, Permit},
    rate_limit::TokenBuckets,
};
use tokio::time::Instant;

use crate::config::SchemaConfig;

/// How long services wait until others are compiled. The connection handles nothing else.
const COMPILE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a call waits until the params of others are checked.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// Devices try again after this time.
const RETRY_BACKOFF: Duration = Duration::from_secs(5);
/// Seconds of the rate of an organisation that it may use at once.
const RATE_BURST_S: u32 = 20;

/// The schemas of one edge.
pub(crate) struct Schemas {
    limits: SchemaLimits,
    interner: Interner<CompiledServices>,
    /// Work that is left to each organisation for new registrations, over all of its connections.
    rate: TokenBuckets<OrgId>,
    /// Memory of registrations, in bytes.
    compiled: Budget,
    compile_jobs: Budget,
    check_jobs: Budget,
}

/// The services of all devices of an organisation that registered the same text.
///
/// Schemas are compiled at registration and not at the first call, because an invalid one must be
/// refused there, and a call must not be refused because its schema no longer fits.
pub(crate) struct CompiledServices {
    registration: Registration,
    _memory: Permit,
}

/// Services that no connection has in use.
pub(crate) struct NewServices {
    org: OrgId,
    json: Box<RawValue>,
    digest: Digest,
    memory: Permit,
}

/// Services of which a part is compiled.
struct PartlyCompiled {
    compilation: Compilation,
    memory: Permit,
}

enum Progress {
    Complete(Box<CompiledServices>),
    /// Another organisation waits for its turn.
    Paused(PartlyCompiled),
}

/// Why services are refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RefusedServices {
    #[error(transparent)]
    Invalid(#[from] RegisterError),
    #[error(
        "overloaded: the organisation registers new services too often. Try again in {wait_ms} ms."
    )]
    RateLimited { wait_ms: u128 },
    #[error(
        "overloaded: {0}. Devices of an organisation with equal services share one copy: register fewer different ones, or raise `--schema-max-compiled-bytes` of the edge. Try again in {retry_ms} ms.",
        retry_ms = RETRY_BACKOFF.as_millis()
    )]
    OutOfMemory(#[source] Exhausted),
    #[error("overloaded: {0}. Try again in {retry_ms} ms.", retry_ms = RETRY_BACKOFF.as_millis())]
    Busy(#[source] Exhausted),
    #[error("the services could not be compiled")]
    Failed,
}

impl Deref for CompiledServices {
    type Target = Registration;

    fn deref(&self) -> &Registration {
        &self.registration
    }
}

impl Schemas {
    pub(crate) fn new(config: &SchemaConfig, budgets: &Budgets) -> Arc<Self> {
        let capacity = config.schema_max_compiled_bytes;
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let half = (cores / 2).max(1);
        // Half: one organisation may have devices of hundreds of kinds.
        let share = (capacity / 2).max(1);
        let rate = config.schema_values_per_org_per_s;
        Arc::new(Self {
            limits: config.limits(),
            interner: Interner::new(),
            rate: TokenBuckets::new(
                rate,
                rate.saturating_mul(NonZeroU32::MIN.saturating_add(RATE_BURST_S - 1)),
            ),
            compiled: budgets.bytes("compiled_schemas", capacity, Kind::Held { share }),
            compile_jobs: budgets.slots("compile_jobs", half, Kind::Brief),
            check_jobs: budgets.slots("validation_jobs", half, Kind::Brief),
        })
    }

    /// Returns the services with this digest if a connection of the organisation has them in use.
    pub(crate) fn find(&self, org: OrgId, digest: Digest) -> Option<Arc<CompiledServices>> {
        self.interner.get(org, digest)
    }

    /// Copies new services. Charges their text.
    ///
    /// # Errors
    /// When the organisation's schemas take too much memory.
    pub(crate) fn reserve(
        &self,
        org: OrgId,
        digest: Digest,
        services: &RawValue,
    ) -> Result<NewServices, RefusedServices> {
        let owner = Owner::Org(org.uuid());
        let memory = self.compiled.try_acquire(owner, services.get().len());
        let memory = memory.map_err(RefusedServices::OutOfMemory)?;
        Ok(NewServices {
            org,
            json: services.to_owned(),
            digest,
            memory,
        })
    }

    /// Compiles new services, unless another connection has done so in the meantime. When another
    /// organisation waits, it goes first after the pattern or schema that is being compiled.
    ///
    /// # Errors
    /// When they are invalid, or when a limit of the organisation or the node forbids it.
    pub(crate) async fn compile(
        self: &Arc<Self>,
        new: NewServices,
    ) -> Result<Arc<CompiledServices>, RefusedServices> {
        let deadline = Instant::now() + COMPILE_TIMEOUT;
        let (org, digest) = (new.org, new.digest);
        let owner = Owner::Org(org.uuid());
        let job = self.compile_jobs.acquire(owner, 1, deadline).await;
        let job = job.map_err(RefusedServices::Busy)?;
        if let Some(known) = self.find(org, digest) {
            return Ok(known);
        }
        let schemas = Arc::clone(self);
        let mut slice =
            run_blocking(job, move |job| schemas.measure(new)?.compile_slice(job)).await;
        loop {
            let (job, progress) = slice.ok_or(RefusedServices::Failed)?;
            let rest = match progress? {
                Progress::Complete(services) => {
                    return Ok(self.interner.insert(org, digest, *services));
                }
                Progress::Paused(rest) => rest,
            };
            let job = job.pass_turn(Instant::now() + COMPILE_TIMEOUT).await;
            let job = job.map_err(RefusedServices::Busy)?;
            slice = run_blocking(job, move |job| rest.compile_slice(job)).await;
        }
    }

    /// Parses and measures new services.
    fn measure(&self, new: NewServices) -> Result<PartlyCompiled, RefusedServices> {
        let NewServices {
            org,
            json,
            mut memory,
            ..
        } = new;
        let measured = MeasuredServices::measure(&json, &self.limits)?;
        let work = u32::try_from(measured.work()).unwrap_or(u32::MAX);
        let work = NonZeroU32::new(work).unwrap_or(NonZeroU32::MIN);
        let rate = self.rate.take_many(&org, work);
        rate.map_err(|limited| RefusedServices::RateLimited {
            wait_ms: limited.retry_after.as_millis(),
        })?;
        grow_to(&mut memory, measured.memory_bytes())?;
        Ok(PartlyCompiled {
            compilation: measured.into_compilation(),
            memory,
        })
    }

    /// Runs a check of params that may take a while. Returns `None` if it failed.
    ///
    /// # Errors
    /// When others are checked for 2 s, or for three quarters of the time until the deadline of the
    /// call: its caller still waits for the answer that the device did not receive it.
    pub(crate) async fn check<T: Send + 'static>(
        &self,
        org: OrgId,
        deadline: std::time::Instant,
        check: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Option<T>, Exhausted> {
        let now = Instant::now();
        let left = Instant::from_std(deadline).saturating_duration_since(now);
        let until = now + CHECK_TIMEOUT.min(left / 4 * 3);
        let owner = Owner::Org(org.uuid());
        let job = self.check_jobs.acquire(owner, 1, until).await?;
        let checked = run_blocking(job, |_| check()).await;
        Ok(checked.map(|(_, result)| result))
    }

    /// Forgets the rates of organisations that did not register new services for a while.
    pub(crate) fn sweep(&self) {
        self.rate.sweep();
    }
}

impl PartlyCompiled {
    /// Compiles what is left, or as much as there is time for until another organisation waits.
    fn compile_slice(mut self, job: &Permit) -> Result<Progress, RefusedServices> {
        while self.compilation.step()? {
            if job.is_awaited() {
                return Ok(Progress::Paused(self));
            }
        }
        let registration = self.compilation.finish()?;
        grow_to(&mut self.memory, registration.memory_bytes())?;
        Ok(Progress::Complete(Box::new(CompiledServices {
            registration,
            _memory: self.memory,
        })))
    }
}

/// Runs a job in the blocking pool. It keeps its permit until it ends, even when the connection
/// no longer waits. Returns `None` if the job panics or the process ends.
async fn run_blocking<T: Send + 'static>(
    permit: Permit,
    job: impl FnOnce(&Permit) -> T + Send + 'static,
) -> Option<(Permit, T)> {
    let job = tokio::task::spawn_blocking(move || {
        let result = job(&permit);
        (permit, result)
    });
    job.await.ok()
}

fn grow_to(memory: &mut Permit, bytes: usize) -> Result<(), RefusedServices> {
    let grown = memory.try_grow(bytes.saturating_sub(memory.amount()));
    grown.map_err(RefusedServices::OutOfMemory)
}
