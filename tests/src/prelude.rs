//! The names that most tests use.

pub use crate::{
    clock::{ShiftedClock, TokioClock},
    deployment::{DeliveryCollector, LocalDeployment},
    faults::{Fault, FaultyQueue, FaultyTable, TableCall},
    handlers::{Counting, Done, Scripted, Slow, answering, failing, rejecting},
    testbed::TestBed,
    webhooks::{noise, request, signed, signed_as, update},
    world::{TestWorld, entity, key, record},
};
pub use futures_util::future::{BoxFuture, join_all};
pub use serializer::{
    local::{
        function_process::{FunctionProcess, FunctionSettings, ProcessLogs},
        handler_log::RunEnd,
        samples::SignedWebhook,
    },
    view::audit::Sent,
};
pub use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    future::ready,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
pub use webhook_serializer::{
    aws::{Account, Parts, meter::Reading},
    engine::{
        append::Inbox,
        drain::{Acknowledgement, Drainer, MARGIN, ReceivedWakeUp, SuspectGate},
        queue::{Message, QueueError},
    },
    functions::{
        ingest::{HttpRequest, Ingest, Response},
        worker::{SqsEvent, SqsRecord, Worker},
    },
    handler::{Context, Handler, HandlerError, Isolation, Outcome},
    jobs::{Job, JobError, Jobs, Ticker},
    leases::{Leases, Terms},
    operator::{Erased, Operator, OperatorError, Redriven, RewindOutcome, SkipOutcome},
    protocol::{
        delivery::{Age, Delivery, Envelope, Incoming},
        entity::{DeliveryId, EntityKey, FencingToken, Sequence, SourceName},
        format::attribute as a,
        inbox::{Claim, Put, Unblocked},
        keys::{delivery_row, entity_row, key_of, parked_row},
        lease::{Acquire, Acquired, Lease, Release},
        maintain::{NextRestore, Reason},
        memory::MemoryTable,
        operation::Operation,
        receipt::{Recent, Settlement},
        state::{BlockReason, EntityState, HolderInfo, LeaseKind},
        table::{Action, Change, Condition, Key, Row, Table, TableError, TableName, Value, Write, Written},
        tick::{JobState, TickOutcome},
    },
    sources::{LiveSources, Sources},
    telemetry::{Event, Observer, TracingLog},
    time::{Clock, Env, SeededRandom, Timestamp},
};
