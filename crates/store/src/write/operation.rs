//! Creating an object whose bytes are all present, as an operation: at once if nothing is in the
//! way, otherwise by a thread that waits. Values too large for one record go through a writer.
//!
//! Invariants: an operation that outlives the call works on bytes of its own, or that it shares; a
//! refused create removes the version that it was to replace. Threads: any.

use std::sync::Arc;
use std::time::Duration;

use super::create::{CreateBlocked, NewObject};
use super::value::Value;
use super::writer::{Writer, WriterOptions};
use crate::deferred::Deferred;
use crate::engine::Engine;
use crate::error::CreateError;
use crate::stats::add;

type CreateOperation = Deferred<Result<(), CreateError>>;

/// A create that waits to be begun, and counts as abandoned if it is dropped before: unpolled, or
/// while it is queued for a thread.
struct Unbegun(Option<Arc<Engine>>);

impl Unbegun {
    fn of(engine: &Arc<Engine>) -> Unbegun {
        Unbegun(Some(Arc::clone(engine)))
    }

    fn begin(mut self) -> Arc<Engine> {
        self.0.take().expect("a create begins once, since that takes it")
    }
}

impl Drop for Unbegun {
    fn drop(&mut self) {
        if let Some(engine) = &self.0 {
            add(&engine.counters.drops_abandoned, 1);
        }
    }
}

/// Creates a whole object at once if possible; otherwise returns an operation that waits.
pub(crate) fn create_operation(engine: &Arc<Engine>, new: &NewObject<'_>) -> CreateOperation {
    let started = engine.clock.monotonic();
    let checked = engine.check_key(new.key).and_then(|()| engine.check_metadata(new.metadata));
    let bytes = new.value.len() as u64;
    let admitted = || engine.admit(new.key, new.group, new.metadata, Some(bytes));
    if let Err(error) = checked.and_then(|()| admitted()) {
        return refused(engine, new.key, error);
    }
    let one_record_max = engine.one_record_max(new.key.len(), new.metadata.len());
    if bytes > one_record_max {
        return create_by_writer(engine, new, started);
    }
    match engine.create_unblocked(new) {
        Ok(()) => Deferred::ready(engine.timed(started, Ok(()))),
        Err(CreateBlocked::Failed(error)) => refused(engine, new.key, error),
        Err(CreateBlocked::Outdated) => Deferred::ready(Err(CreateError::Superseded)),
        // Without background threads, only this caller can make room.
        Err(CreateBlocked::MustWait) if engine.is_inline() => {
            let created = engine.or_removed(new.key, None, engine.create_waiting(new));
            Deferred::ready(engine.timed(started, created))
        }
        Err(CreateBlocked::MustWait) => {
            let (key, metadata, value) =
                (new.key.to_vec(), new.metadata.to_vec(), new.value.kept());
            let (group, expires_s) = (new.group, new.expires_s);
            let unbegun = Unbegun::of(engine);
            Deferred::creating(engine, move |caller| {
                let this = unbegun.begin();
                let created = this.create_waiting(&NewObject {
                    metadata: &metadata,
                    expires_s,
                    caller: Some(caller),
                    ..NewObject::of(&key, group, Value::Shared(&value))
                });
                if caller.is_gone() && created == Err(CreateError::Closed) {
                    add(&this.counters.drops_abandoned, 1);
                }
                this.timed(started, this.or_removed(&key, Some(caller), created))
            })
        }
    }
}

/// A create that is refused: at once, unless the remove of the version that it was to replace would
/// block the caller.
pub(crate) fn refused(engine: &Arc<Engine>, key: &[u8], error: CreateError) -> CreateOperation {
    if !error.outdates() || !engine.remove_blocks(key) {
        return Deferred::ready(engine.or_removed(key, None, Err(error)));
    }
    let (this, key) = (Arc::clone(engine), key.to_vec());
    Deferred::creating(engine, move |caller| this.or_removed(&key, Some(caller), Err(error)))
}

/// Creates an object too large for one extent, through a writer that gets the whole value at once.
fn create_by_writer(
    engine: &Arc<Engine>,
    new: &NewObject<'_>,
    started: Duration,
) -> CreateOperation {
    let options = WriterOptions {
        metadata: new.metadata.to_vec(),
        expires_unix_s: (new.expires_s != 0).then_some(u64::from(new.expires_s)),
        length: Some(new.value.len() as u64),
    };
    let group = new.group;
    if engine.is_inline() {
        let written = Writer::admitted(engine, new.key, group, options)
            .and_then(|writer| writer.write_all(new.value));
        return Deferred::ready(engine.timed(started, engine.or_removed(new.key, None, written)));
    }
    let (key, value) = (new.key.to_vec(), new.value.kept());
    let unbegun = Unbegun::of(engine);
    Deferred::creating(engine, move |caller| {
        let this = unbegun.begin();
        let value = Value::Shared(&value);
        let written = Writer::admitted(&this, &key, group, options).and_then(|mut writer| {
            writer.caller = Some(caller.clone());
            writer.write_all(value)
        });
        this.timed(started, this.or_removed(&key, Some(caller), written))
    })
}
