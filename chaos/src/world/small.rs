//! One service, its repositories, its fleet and a hub: where most tests begin.

use super::{Fleet, Hub, Repository, Role, Site, Target, declare};
use crate::kit::KitError;

/// The path of the service in its repository.
const PATH: &str = "manifests";

/// A fleet of one service, with a hub that is complete by itself.
pub struct World {
    // In the order in which they are dropped.
    /// The only hub.
    pub hub: Hub,
    /// The fleet.
    pub fleet: Fleet,
    /// The fleet repository: `fleet.yaml` declares the source `app` and the service.
    pub declared: Repository,
    /// The repository of the service, whose manifests are in the folder `manifests`.
    pub app: Repository,
}

impl World {
    /// A running hub, with its record on disk, for a service of these raw manifests.
    ///
    /// # Errors
    /// When a process does not start.
    pub async fn on_disk(service: &str, manifests: &[(&str, &str)]) -> Result<Self, KitError> {
        let (declared, app) = repositories(service, manifests).await?;
        let fleet = Fleet::on_disk(&declared.url())?;
        Self::start(fleet, declared, app).await
    }

    /// The same, with the record in a bucket and the index in Redis.
    ///
    /// # Errors
    /// When a process does not start.
    pub async fn in_bucket(service: &str, manifests: &[(&str, &str)]) -> Result<Self, KitError> {
        let (declared, app) = repositories(service, manifests).await?;
        let fleet = Fleet::in_bucket(&declared.url()).await?;
        Self::start(fleet, declared, app).await
    }

    async fn start(fleet: Fleet, declared: Repository, app: Repository) -> Result<Self, KitError> {
        let mut hub = fleet.hub("hub", Role::All)?;
        hub.start().await?;
        Ok(Self { hub, fleet, declared, app })
    }

    /// A running site of this fleet, which asks the only hub.
    ///
    /// # Errors
    /// When its agent does not start.
    pub async fn site(&self, name: &str, target: Target) -> Result<Site, KitError> {
        let mut site = self.fleet.site(name, &self.hub.address(), target)?;
        site.start().await?;
        Ok(site)
    }

    /// Commits manifests of the service.
    ///
    /// # Errors
    /// When `git` fails.
    pub fn commit(&mut self, manifests: &[(&str, &str)]) -> Result<String, KitError> {
        let placed: Vec<(String, &str)> =
            manifests.iter().map(|(file, text)| (format!("{PATH}/{file}"), *text)).collect();
        let files: Vec<(&str, &str)> = placed.iter().map(|(file, text)| (file.as_str(), *text)).collect();
        self.app.commit(&files)
    }
}

async fn repositories(
    service: &str,
    manifests: &[(&str, &str)],
) -> Result<(Repository, Repository), KitError> {
    let placed: Vec<(String, &str)> =
        manifests.iter().map(|(file, text)| (format!("{PATH}/{file}"), *text)).collect();
    let files: Vec<(&str, &str)> = placed.iter().map(|(file, text)| (file.as_str(), *text)).collect();
    let app = Repository::of(&files).await?;
    let text = format!(
        "{}---\n{}",
        declare::source("app", &app.url()),
        declare::service(service, "app", PATH, "raw")
    );
    Ok((Repository::of(&[("fleet.yaml", &text)]).await?, app))
}
