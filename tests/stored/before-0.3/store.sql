BEGIN TRANSACTION;
CREATE TABLE "appended" (
	"n" BIGINT
);
INSERT INTO "appended" VALUES(1);
INSERT INTO "appended" VALUES(2);
CREATE TABLE "counts" (
	"key" TEXT NOT NULL, 
	value BIGINT NOT NULL, 
	txid BIGINT NOT NULL, 
	PRIMARY KEY ("key"), 
	CHECK (typeof(value) IN ('integer', 'null'))
)
 WITHOUT ROWID

;
INSERT INTO "counts" VALUES('x',1,1);
INSERT INTO "counts" VALUES('y',2,1);
CREATE TABLE kafka_tx_offset_owners (
	id VARCHAR(200) NOT NULL, 
	owners TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "kafka_tx_offset_owners" VALUES('spout','{"v":1,"kind":"owners","crc":"cd590e89","data":{"last":1,"tasks":1,"epochs":{"0":1}}}');
CREATE TABLE kafka_tx_offsets (
	id VARCHAR(200) NOT NULL, 
	topic VARCHAR(249) NOT NULL, 
	partition INTEGER NOT NULL, 
	next_offset BIGINT NOT NULL, 
	completed TEXT NOT NULL, 
	topology_id TEXT NOT NULL, 
	topology_name TEXT NOT NULL, 
	broker_host TEXT NOT NULL, 
	broker_port INTEGER NOT NULL, 
	PRIMARY KEY (id, topic, partition)
);
INSERT INTO "kafka_tx_offsets" VALUES('spout','a',0,5,'{"completed":[[7,9]],"topic_id":"QUJDREVGR0hJSktMTU5PUA","failures":[[5,6,2]]}','spout','spout','b',9092);
CREATE TABLE kafka_tx_owner (
	id VARCHAR(200) NOT NULL, 
	epoch BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "kafka_tx_owner" VALUES('source',1);
INSERT INTO "kafka_tx_owner" VALUES('topology',1);
CREATE TABLE kafka_tx_progress (
	name VARCHAR(200) NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	txid BIGINT NOT NULL, 
	attempt_id BIGINT NOT NULL, 
	epoch BIGINT, 
	"plan" VARCHAR(16), 
	PRIMARY KEY (name)
);
INSERT INTO "kafka_tx_progress" VALUES('counts','transactional map',1,1000000000001,1,'');
INSERT INTO "kafka_tx_progress" VALUES('opaque_counts','opaque map',1,1000000000001,1,'');
INSERT INTO "kafka_tx_progress" VALUES('appended','transactional table',1,1000000000001,1,'');
CREATE TABLE kafka_tx_state (
	id VARCHAR(200) NOT NULL, 
	path VARCHAR(500) NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (id, path)
);
INSERT INTO "kafka_tx_state" VALUES('source','meta/1','{"v":1,"kind":"batch","crc":"32525a4d","data":{"txid":1,"ranges":{"a":{"0":[0,5]}},"topic_ids":{"a":"QUJDREVGR0hJSktMTU5PUA"}}}');
INSERT INTO "kafka_tx_state" VALUES('source','committed','{"v":1,"kind":"committed","crc":"c510cc59","data":{"txid":1,"offsets":{"a":{"0":5}},"topic_ids":{"a":"QUJDREVGR0hJSktMTU5PUA"},"completed_ms":1700000000000}}');
INSERT INTO "kafka_tx_state" VALUES('source','currtx','{"v":1,"kind":"currtx","crc":"58defb76","data":2}');
INSERT INTO "kafka_tx_state" VALUES('source','meta/2','{"v":1,"kind":"batch","crc":"22610f97","data":{"txid":2,"ranges":{"a":{"0":[5,9]}},"topic_ids":{"a":"QUJDREVGR0hJSktMTU5PUA"}}}');
INSERT INTO "kafka_tx_state" VALUES('topology','coordinator/currtx','{"v":1,"kind":"currtx","crc":"58defb76","data":2}');
INSERT INTO "kafka_tx_state" VALUES('topology','coordinator/meta/1','{"v":1,"kind":"meta","crc":"f917c026","data":{"a":{"0":[0,5]}}}');
CREATE TABLE kafka_tx_writings (
	name VARCHAR(200) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "kafka_tx_writings" VALUES('counts','8be7a90b20c77aa05b984a831a6bfbda95efa05c71ef0078ff07e17e914e8c4b');
INSERT INTO "kafka_tx_writings" VALUES('opaque_counts','8be7a90b20c77aa05b984a831a6bfbda95efa05c71ef0078ff07e17e914e8c4b');
CREATE TABLE "opaque_counts" (
	"key" TEXT NOT NULL, 
	value BIGINT, 
	previous BIGINT, 
	txid BIGINT NOT NULL, 
	PRIMARY KEY ("key"), 
	CHECK (typeof(value) IN ('integer', 'null'))
)
 WITHOUT ROWID

;
INSERT INTO "opaque_counts" VALUES('x',1,NULL,1);
INSERT INTO "opaque_counts" VALUES('y',2,NULL,1);
CREATE TABLE "plain_counts" (
	"key" TEXT NOT NULL, 
	value BIGINT NOT NULL, 
	PRIMARY KEY ("key"), 
	CHECK (typeof(value) IN ('integer', 'null'))
)
 WITHOUT ROWID

;
INSERT INTO "plain_counts" VALUES('x',1);
INSERT INTO "plain_counts" VALUES('y',2);
CREATE INDEX opaque_counts_removed ON "opaque_counts" ("key") WHERE value IS NULL;
COMMIT;
