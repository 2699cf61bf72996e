-- The newest fencing token seen of each entity.
CREATE TABLE IF NOT EXISTS newest_token (
    entity_key text PRIMARY KEY,
    token bigint NOT NULL
);

-- The deliveries applied, by `webhook-id`. Rows older than the serializer's
-- RETENTION_DAYS can be deleted.
CREATE TABLE IF NOT EXISTS applied (
    id text PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now()
);

-- Yours: what the deliveries are about.
CREATE TABLE IF NOT EXISTS orders (
    entity_key text PRIMARY KEY,
    last_topic text NOT NULL,
    last_body jsonb NOT NULL,
    deliveries integer NOT NULL
);
