//! What planning and applying see of a target.

use serde_json::Value;

use std::sync::PoisonError;

use super::Guarded;
use crate::object::{Manifest, ObjectKey, Owner};
use crate::plan::Item;
use crate::target::{
    Applied, Deleted, Effect, Live, ObjectError, Preview, Taken, Target, Unreachable, Whole,
};

impl<T: Target> Target for Guarded<T> {
    async fn ready(&self) -> Result<(), Unreachable> {
        self.target.ready().await
    }

    async fn locate(
        &self,
        manifests: Vec<Manifest>,
        default_namespace: Option<&str>,
    ) -> Vec<Result<Manifest, ObjectError>> {
        self.target.locate(manifests, default_namespace).await
    }

    async fn observe(&self, owner: &Owner, items: &[Item]) -> Vec<Result<Live, ObjectError>> {
        let observed = self.observed.lock().unwrap_or_else(PoisonError::into_inner).take();
        match observed.filter(|(keys, _)| keys.iter().eq(items.iter().map(|item| &item.key))) {
            Some((_, observed)) => observed,
            None => self.judged(owner, items).await,
        }
    }

    async fn ensure_namespace(&self, owner: &Owner, name: &str) -> Result<(), ObjectError> {
        let key = ObjectKey::namespace(name);
        self.era.within(&key, self.target.ensure_namespace(owner, name)).await
    }

    async fn apply(&self, owner: &Owner, manifest: &Manifest) -> Result<Applied, ObjectError> {
        self.era.within(&manifest.key, self.put(owner, manifest)).await
    }

    async fn delete(&self, owner: &Owner, item: &Item) -> Result<Deleted, ObjectError> {
        self.era.within(&item.key, self.target.delete(owner, item)).await
    }

    async fn read(&self, owner: &Owner, item: &Item) -> Result<Option<Whole>, ObjectError> {
        self.target.read(owner, item).await
    }

    fn shows_health(&self) -> bool {
        self.target.shows_health()
    }

    async fn inspect(
        &self,
        owner: &Owner,
        key: &ObjectKey,
        version: &str,
    ) -> Result<Option<Value>, ObjectError> {
        self.era.within(key, self.target.inspect(owner, key, version)).await
    }

    async fn log_tail(&self, owner: &Owner, key: &ObjectKey, limit: usize) -> Result<String, ObjectError> {
        self.target.log_tail(owner, key, limit).await
    }

    async fn preview(&self, owner: &Owner, manifest: &Manifest) -> Result<Preview, ObjectError> {
        self.target.preview(owner, manifest).await
    }

    async fn adopt(
        &self,
        owner: &Owner,
        manifest: &Manifest,
        effect: Effect,
    ) -> Result<Vec<Taken>, ObjectError> {
        self.era.within(&manifest.key, self.target.adopt(owner, manifest, effect)).await
    }
}
