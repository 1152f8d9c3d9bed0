//! A control plane with its own database.

use std::{
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use axum::{Router, body::Body, response::Response};
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use secrecy::SecretString;
use serde_json::{Value, json};
use switchboard_bus::{Bus, BusConfig, LocalHub};
use switchboard_control::{Config, Deps, PublicKeys, QuotaConfig, WebhookConfig};
use switchboard_identity::Authenticator;
use switchboard_protocol::id::OrgId;
use switchboard_runtime::{budget::Budgets, shutdown::Shutdown};
use switchboard_store::{Objects, Store, testing::TestDatabase};
use switchboard_test_support::eventually::eventually_true;
use tempfile::TempDir;
use tower::ServiceExt;

pub(crate) const OPERATOR_KEY: &str = "the operator's own key";

/// A control plane and its dependencies.
pub(crate) struct Installation {
    pub(crate) store: Store,
    pub(crate) bus: Bus,
    pub(crate) authenticator: Authenticator,
    pub(crate) registry: prometheus::Registry,
    pub(crate) shutdown: Shutdown,
    pub(crate) hub: LocalHub,
    /// The budgets of the API and the workers.
    pub(crate) budgets: Budgets,
    config: Config,
    public_keys: PublicKeys,
    pub(crate) api: Router,
    /// The folder of the object store.
    folder: TempDir,
    /// The last field: the database is dropped after its users.
    pub(crate) database: TestDatabase,
}

/// An organisation and its first key.
pub(crate) struct Org {
    pub(crate) id: String,
    pub(crate) key: String,
}

impl Org {
    pub(crate) fn id(&self) -> OrgId {
        self.id.parse().unwrap()
    }
}

impl Installation {
    /// With the workers.
    pub(crate) async fn start() -> Self {
        Self::working(with_operator(Some(OPERATOR_KEY))).await
    }

    pub(crate) async fn without_operator() -> Self {
        Self::idle(None).await
    }

    /// Without the workers, with an embeddings endpoint.
    pub(crate) async fn with_embeddings(embeddings: switchboard_embeddings::Config) -> Self {
        let config = Config {
            embeddings,
            ..with_operator(Some(OPERATOR_KEY))
        };
        Self::new(config, in_folder).await
    }

    /// Without the workers, with this configuration.
    pub(crate) async fn with_config(config: Config) -> Self {
        Self::new(config, in_folder).await
    }

    /// With the workers, these default quotas, and a measurement each second.
    pub(crate) async fn with_quotas(quotas: QuotaConfig) -> Self {
        let quotas = QuotaConfig {
            quota_check_interval_s: 1,
            ..quotas
        };
        let config = Config {
            quotas,
            ..with_operator(Some(OPERATOR_KEY))
        };
        // Quotas are received before the keys.
        Self::working(config).await
    }

    /// Without the workers.
    pub(crate) async fn idle(operator_key: Option<&str>) -> Self {
        Self::new(with_operator(operator_key), in_folder).await
    }

    /// With the workers, and a voice provider at this URL.
    pub(crate) async fn with_voices_at(endpoint: &str) -> Self {
        let config = Config {
            voices_endpoint: Some(endpoint.to_owned()),
            voices_key: Some(SecretString::from("the provider's key")),
            ..with_operator(Some(OPERATOR_KEY))
        };
        Self::working(config).await
    }

    /// With the workers, and a voice provider like OpenAI at this URL.
    pub(crate) async fn with_openai_voices_at(endpoint: &str, consent: Option<&str>) -> Self {
        let config = Config {
            voices_openai_endpoint: Some(endpoint.to_owned()),
            voices_openai_key: Some(SecretString::from("the provider's key")),
            voices_openai_consent: consent.map(str::to_owned),
            ..with_operator(Some(OPERATOR_KEY))
        };
        Self::working(config).await
    }

    /// With the workers and this configuration. The keys of tokens are loaded.
    async fn working(config: Config) -> Self {
        let installation = Box::pin(Self::new(config, in_folder)).await;
        installation.start_workers();
        installation.trusted().await;
        installation
    }

    /// Without an object store.
    pub(crate) async fn without_objects() -> Self {
        Self::new(with_operator(Some(OPERATOR_KEY)), |_| None).await
    }

    /// Without the workers, with this object store.
    pub(crate) async fn with_objects(objects: Objects) -> Self {
        Self::new(with_operator(Some(OPERATOR_KEY)), |_| Some(objects)).await
    }

    async fn new(config: Config, objects: impl FnOnce(&Path) -> Option<Objects>) -> Self {
        let database = TestDatabase::create().await.unwrap();
        let (registry, shutdown, hub) = (
            prometheus::Registry::new(),
            Shutdown::new(),
            LocalHub::default(),
        );
        let bus = Bus::start(BusConfig::local(&hub, "control"), &registry, &shutdown).unwrap();
        let folder = TempDir::new().unwrap();
        let store = database.store().with_objects(objects(folder.path()));
        let budgets = Budgets::new(&prometheus::Registry::new()).unwrap();
        let authenticator = Authenticator::new(store.clone(), bus.clone(), &budgets);
        let public_keys = PublicKeys::default();
        let deps = Deps {
            store: store.clone(),
            bus: bus.clone(),
            authenticator: authenticator.clone(),
            registry: registry.clone(),
            budgets: budgets.clone(),
            public_keys: public_keys.clone(),
            sign_in_code: None,
            device_port: 7799,
        };
        let api = switchboard_control::router(&config, deps).unwrap();
        Self {
            store,
            bus,
            authenticator,
            registry,
            shutdown,
            hub,
            budgets,
            config,
            public_keys,
            api,
            folder,
            database,
        }
    }

    pub(crate) fn start_workers(&self) {
        self.start_workers_with(&self.config);
    }

    pub(crate) fn start_workers_with(&self, config: &Config) {
        let deps = Deps {
            budgets: self.budgets.clone(),
            ..self.deps(&self.registry)
        };
        switchboard_control::start_workers(config, &deps, &self.shutdown).unwrap();
    }

    /// The dependencies of a process on the same database and bus.
    pub(crate) fn deps(&self, registry: &prometheus::Registry) -> Deps {
        Deps {
            store: self.store.clone(),
            bus: self.bus.clone(),
            authenticator: self.authenticator.clone(),
            registry: registry.clone(),
            budgets: Budgets::new(&prometheus::Registry::new()).unwrap(),
            public_keys: self.public_keys.clone(),
            sign_in_code: None,
            device_port: 7799,
        }
    }

    /// Starts the workers of another process on the same database.
    pub(crate) fn start_another(&self) -> Shutdown {
        let (registry, shutdown) = (prometheus::Registry::new(), self.shutdown.child());
        let deps = self.deps(&registry);
        switchboard_control::start_workers(&self.config, &deps, &shutdown).unwrap();
        shutdown
    }

    /// Sends a merge patch.
    pub(crate) async fn patch(
        &self,
        key: &str,
        at: &str,
        if_match: Option<&str>,
        patch: Value,
    ) -> Response {
        let mut request = Request::builder()
            .method(Method::PATCH)
            .uri(at)
            .header(header::AUTHORIZATION, format!("Bearer {key}"))
            .header(header::CONTENT_TYPE, "application/merge-patch+json");
        if let Some(tag) = if_match {
            request = request.header(header::IF_MATCH, tag);
        }
        self.answer(request.body(patch.to_string().into()).unwrap())
            .await
    }

    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        credential: Option<&str>,
        body: Option<Value>,
    ) -> Response {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(credential) = credential {
            request = request.header(header::AUTHORIZATION, format!("Bearer {credential}"));
        }
        let body = match body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        self.answer(request.body(body).unwrap()).await
    }

    pub(crate) fn objects_folder(&self) -> &Path {
        self.folder.path()
    }

    /// The stored objects.
    pub(crate) fn objects(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.objects_folder().to_owned()];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
                match entry.file_type().unwrap().is_dir() {
                    true => folders.push(entry.path()),
                    false => files.push(entry.path()),
                }
            }
        }
        files
    }

    /// The response of the API to any request.
    pub(crate) async fn answer(&self, request: Request<Body>) -> Response {
        self.api.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        credential: Option<&str>,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        let response = self.request(method, path, credential, body).await;
        (response.status(), self::body(response).await)
    }

    pub(crate) async fn new_org(&self, name: &str) -> Org {
        let request = Some(json!({"name": name}));
        let (status, org) = self
            .send(Method::POST, "/v1/orgs", Some(OPERATOR_KEY), request)
            .await;
        assert_eq!(
            (status, org["name"].as_str()),
            (StatusCode::CREATED, Some(name)),
            "{org}"
        );
        let text = |field: &str| org[field].as_str().unwrap().to_owned();
        Org {
            id: text("org_id"),
            key: text("api_key"),
        }
    }

    /// Waits until this node can verify tokens.
    pub(crate) async fn trusted(&self) {
        eventually_true("the token keys", || self.bus.has_keys()).await;
    }

    /// The value of a counter or gauge without labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let families = self.registry.gather();
        let family = families
            .iter()
            .find(|family| family.name() == name)
            .unwrap();
        let metric = &family.get_metric()[0];
        metric.get_counter().get_value() + metric.get_gauge().get_value()
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        self.shutdown.stop();
    }
}

/// The JSON body of a response; null if it is empty.
pub(crate) async fn body(response: Response) -> Value {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    if bytes.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&bytes).unwrap()
    }
}

fn in_folder(folder: &Path) -> Option<Objects> {
    Some(Objects::in_folder(folder).unwrap())
}

fn with_operator(operator_key: Option<&str>) -> Config {
    Config {
        operator_key: operator_key.map(SecretString::from),
        ..config()
    }
}

pub(crate) fn config() -> Config {
    Config {
        operator_key: None,
        longest_token_ttl_s: 86_400,
        quotas: QuotaConfig::DEFAULT,
        control_org_rate_per_s: NonZeroU32::MAX,
        control_org_burst: NonZeroU32::MAX,
        facts_batch: 100,
        // The test program has no parser subcommand.
        skills_readers: 0,
        webhooks_senders: 8,
        webhooks: WebhookConfig {
            webhooks_allow: vec!["127.0.0.0/8".parse().unwrap()],
            webhooks_ca: None,
        },
        embeddings: switchboard_embeddings::Config::default(),
        voices_endpoint: None,
        voices_key: None,
        voices_openai_endpoint: None,
        voices_openai_key: None,
        voices_openai_consent: None,
    }
}
