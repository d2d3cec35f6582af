BEGIN TRANSACTION;
CREATE TABLE kafka_tx_offset_owners (
	id VARCHAR(200) NOT NULL, 
	owners TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "kafka_tx_offset_owners" VALUES('at_least_once','{"v":3,"kind":"owners","crc":"8cf47661","data":{"last":2,"tasks":2,"epochs":{"1":1,"0":2},"words":{"1":"a1f23d9d","0":"c4afcc42"}}}');
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
INSERT INTO "kafka_tx_offsets" VALUES('at_least_once','a',0,5,'{"v":3,"completed":[[7,9],[12,20]],"topic_id":"AAAAAAAAAAAAAAAAAAAAAA","leader_epoch":4,"failures":[[5,6,2]],"committed_ms":1700000000000}','deployed','spout','b',9092);
INSERT INTO "kafka_tx_offsets" VALUES('at_least_once','b',0,3,'{"v":3,"completed":[]}','','','',0);
CREATE TABLE kafka_tx_owner (
	id VARCHAR(200) NOT NULL, 
	epoch BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "kafka_tx_owner" VALUES('new',1);
INSERT INTO "kafka_tx_owner" VALUES('planned',1);
INSERT INTO "kafka_tx_owner" VALUES('written',1);
INSERT INTO "kafka_tx_owner" VALUES('opaque',1);
INSERT INTO "kafka_tx_owner" VALUES('several-a',1);
INSERT INTO "kafka_tx_owner" VALUES('several-b',1);
INSERT INTO "kafka_tx_owner" VALUES('fenced',2);
INSERT INTO "kafka_tx_owner" VALUES('topology_planned',1);
INSERT INTO "kafka_tx_owner" VALUES('topology_written',1);
INSERT INTO "kafka_tx_owner" VALUES('topology_opaque',1);
INSERT INTO "kafka_tx_owner" VALUES('whole',1);
INSERT INTO "kafka_tx_owner" VALUES('moved',2);
CREATE TABLE kafka_tx_progress (
	name VARCHAR(200) NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	txid BIGINT NOT NULL, 
	attempt_id BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	"plan" VARCHAR(16) NOT NULL, 
	numbering VARCHAR(32) NOT NULL, 
	source VARCHAR(200) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	format INTEGER NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "kafka_tx_progress" VALUES('rows_planned','transactional table',1,1000000000001,1,'80d09a763412435f','4dfe2c6a03e4','planned','971b79b392d71abcef12d138a60ebdb1',3);
INSERT INTO "kafka_tx_progress" VALUES('rows_written','transactional table',2,1000000000001,1,'a640e84623e6008c','caa7e51e647a','written','5a5120336f5f4adadf17bcc72be3cfab',3);
INSERT INTO "kafka_tx_progress" VALUES('rows_opaque','opaque table',2,1000000000001,1,'','cee6a0dec199','opaque','5fa22337fe7f765fe7408831abd603c2',3);
INSERT INTO "kafka_tx_progress" VALUES('rows_several','transactional table',2,1000000000001,1,'aad9e5e39a7d8c85','bf449e53f738','several-a','26d0c97b8cdde9843b22957ae11dee6e',3);
INSERT INTO "kafka_tx_progress" VALUES('rows_fenced','transactional table',2,2000000000001,2,'a640e84623e6008c','c63a37e1c81e','fenced','3e243f471bac823332f51a1744971723',3);
INSERT INTO "kafka_tx_progress" VALUES('rows_topology_planned','transactional table',1,1000000000002,1,'16a92f3228fefc6b','25b4a560963b','topology_planned','2e2a9e3db2aaa7314c1855035d11ac30',3);
INSERT INTO "kafka_tx_progress" VALUES('rows_topology_written','transactional table',2,1000000000004,1,'302db05106e30c10','9d1f2948ef9d','topology_written','b712fb22fafd22a458c798a57e794860',3);
INSERT INTO "kafka_tx_progress" VALUES('rows_topology_opaque','opaque table',2,1000000000002,1,'','f7a6a4207fd9','topology_opaque','4933aeab7ce90e93b84c9ef78834a9eb',3);
CREATE TABLE kafka_tx_state (
	id VARCHAR(200) NOT NULL, 
	path VARCHAR(500) NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (id, path)
);
INSERT INTO "kafka_tx_state" VALUES('new','owner','{"v":3,"kind":"owner","crc":"2a1019e2","data":"a3197d3451fcb057"}');
INSERT INTO "kafka_tx_state" VALUES('new','alive','{"v":3,"kind":"alive","crc":"4f201f8a","data":"78645bde"}');
INSERT INTO "kafka_tx_state" VALUES('new','committed','{"v":3,"kind":"committed","crc":"e1b22c42","data":{"txid":0,"offsets":{"a":{"0":0},"b":{"0":0}},"topic_ids":{"a":"1","b":"2"},"completed_ms":1700000000000}}');
INSERT INTO "kafka_tx_state" VALUES('new','currtx','{"v":3,"kind":"currtx","crc":"c5227af1","data":1}');
INSERT INTO "kafka_tx_state" VALUES('new','numbering','{"v":3,"kind":"numbering","crc":"f1238400","data":{"name":"08bb223f7881","door":"source"}}');
INSERT INTO "kafka_tx_state" VALUES('planned','owner','{"v":3,"kind":"owner","crc":"38593f3d","data":"66bb641324d7dfae"}');
INSERT INTO "kafka_tx_state" VALUES('planned','alive','{"v":3,"kind":"alive","crc":"51d1d561","data":"cd9159e7"}');
INSERT INTO "kafka_tx_state" VALUES('planned','committed','{"v":3,"kind":"committed","crc":"5bb364a7","data":{"txid":1,"offsets":{"a":{"0":2},"b":{"0":2}},"topic_ids":{"a":"1","b":"2"},"completed_ms":1700000000000,"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]}}}');
INSERT INTO "kafka_tx_state" VALUES('planned','currtx','{"v":3,"kind":"currtx","crc":"5c2b2b4b","data":2}');
INSERT INTO "kafka_tx_state" VALUES('planned','numbering','{"v":3,"kind":"numbering","crc":"6392d4cd","data":{"name":"4dfe2c6a03e4","door":"source"}}');
INSERT INTO "kafka_tx_state" VALUES('planned','meta/1','{"v":3,"kind":"batch","crc":"b6e444cd","data":{"txid":1,"ranges":{"a":{"0":[0,2]},"b":{"0":[0,2]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]},"logged_as":"1@1"}}');
INSERT INTO "kafka_tx_state" VALUES('planned','asked','{"v":3,"kind":"asked","crc":"5ca4f392","data":true}');
INSERT INTO "kafka_tx_state" VALUES('planned','query','{"v":3,"kind":"query","crc":"e6de8396","data":{"numbered":["planned"],"others":[],"states":[],"numberings":[]}}');
INSERT INTO "kafka_tx_state" VALUES('planned','held','{"v":3,"kind":"held","crc":"0b7388dd","data":[{"txid":1,"epoch":1,"committed_ms":1700000000000,"attempts":1}]}');
INSERT INTO "kafka_tx_state" VALUES('planned','meta/2','{"v":3,"kind":"batch","crc":"bc9f018c","data":{"txid":2,"ranges":{"a":{"0":[2,4]},"b":{"0":[2,4]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]},"logged_as":"2@1"}}');
INSERT INTO "kafka_tx_state" VALUES('written','owner','{"v":3,"kind":"owner","crc":"c9e4b44b","data":"378ed2ffb1099485"}');
INSERT INTO "kafka_tx_state" VALUES('written','alive','{"v":3,"kind":"alive","crc":"0a90bfc6","data":"622c8593"}');
INSERT INTO "kafka_tx_state" VALUES('written','committed','{"v":3,"kind":"committed","crc":"5bb364a7","data":{"txid":1,"offsets":{"a":{"0":2},"b":{"0":2}},"topic_ids":{"a":"1","b":"2"},"completed_ms":1700000000000,"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]}}}');
INSERT INTO "kafka_tx_state" VALUES('written','currtx','{"v":3,"kind":"currtx","crc":"5c2b2b4b","data":2}');
INSERT INTO "kafka_tx_state" VALUES('written','numbering','{"v":3,"kind":"numbering","crc":"c4fa338d","data":{"name":"caa7e51e647a","door":"source"}}');
INSERT INTO "kafka_tx_state" VALUES('written','meta/1','{"v":3,"kind":"batch","crc":"b6e444cd","data":{"txid":1,"ranges":{"a":{"0":[0,2]},"b":{"0":[0,2]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]},"logged_as":"1@1"}}');
INSERT INTO "kafka_tx_state" VALUES('written','asked','{"v":3,"kind":"asked","crc":"5ca4f392","data":true}');
INSERT INTO "kafka_tx_state" VALUES('written','query','{"v":3,"kind":"query","crc":"a0c2e701","data":{"numbered":["written"],"others":[],"states":[],"numberings":[]}}');
INSERT INTO "kafka_tx_state" VALUES('written','held','{"v":3,"kind":"held","crc":"0b7388dd","data":[{"txid":1,"epoch":1,"committed_ms":1700000000000,"attempts":1}]}');
INSERT INTO "kafka_tx_state" VALUES('written','meta/2','{"v":3,"kind":"batch","crc":"bc9f018c","data":{"txid":2,"ranges":{"a":{"0":[2,4]},"b":{"0":[2,4]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]},"logged_as":"2@1"}}');
INSERT INTO "kafka_tx_state" VALUES('opaque','owner','{"v":3,"kind":"owner","crc":"b31b8c35","data":"b488c19b7ddf988d"}');
INSERT INTO "kafka_tx_state" VALUES('opaque','alive','{"v":3,"kind":"alive","crc":"b4fc409a","data":"d4eb5ff4"}');
INSERT INTO "kafka_tx_state" VALUES('opaque','committed','{"v":3,"kind":"committed","crc":"5bb364a7","data":{"txid":1,"offsets":{"a":{"0":2},"b":{"0":2}},"topic_ids":{"a":"1","b":"2"},"completed_ms":1700000000000,"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]}}}');
INSERT INTO "kafka_tx_state" VALUES('opaque','currtx','{"v":3,"kind":"currtx","crc":"5c2b2b4b","data":2}');
INSERT INTO "kafka_tx_state" VALUES('opaque','numbering','{"v":3,"kind":"numbering","crc":"d5f91411","data":{"name":"cee6a0dec199","door":"source"}}');
INSERT INTO "kafka_tx_state" VALUES('opaque','meta/1','{"v":3,"kind":"batch","crc":"f589d1a7","data":{"txid":1,"ranges":{"a":{"0":[0,2]},"b":{"0":[0,2]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]},"logged_as":"1@1","mode":"opaque"}}');
INSERT INTO "kafka_tx_state" VALUES('opaque','asked','{"v":3,"kind":"asked","crc":"5ca4f392","data":true}');
INSERT INTO "kafka_tx_state" VALUES('opaque','query','{"v":3,"kind":"query","crc":"435cb986","data":{"numbered":["opaque"],"others":[],"states":[],"numberings":[]}}');
INSERT INTO "kafka_tx_state" VALUES('opaque','held','{"v":3,"kind":"held","crc":"0b7388dd","data":[{"txid":1,"epoch":1,"committed_ms":1700000000000,"attempts":1}]}');
INSERT INTO "kafka_tx_state" VALUES('opaque','meta/2','{"v":3,"kind":"batch","crc":"13eb9db4","data":{"txid":2,"ranges":{"a":{"0":[2,4]},"b":{"0":[2,4]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]},"logged_as":"2@1","mode":"opaque"}}');
INSERT INTO "kafka_tx_state" VALUES('several-a','owner','{"v":3,"kind":"owner","crc":"2bb6ea9b","data":"872cd4f98f0de268"}');
INSERT INTO "kafka_tx_state" VALUES('several-a','alive','{"v":3,"kind":"alive","crc":"bf39f291","data":"b659651f"}');
INSERT INTO "kafka_tx_state" VALUES('several-a','committed','{"v":3,"kind":"committed","crc":"4cd44219","data":{"txid":1,"offsets":{"a":{"0":5}},"topic_ids":{"a":"1"},"completed_ms":1700000000000,"leader_epochs":{"a":[[0,"0"]]}}}');
INSERT INTO "kafka_tx_state" VALUES('several-a','currtx','{"v":3,"kind":"currtx","crc":"5c2b2b4b","data":2}');
INSERT INTO "kafka_tx_state" VALUES('several-a','numbering','{"v":3,"kind":"numbering","crc":"6c126936","data":{"name":"bf449e53f738","door":"source"}}');
INSERT INTO "kafka_tx_state" VALUES('several-a','meta/1','{"v":3,"kind":"batch","crc":"92724cc8","data":{"txid":1,"ranges":{"a":{"0":[0,5]}},"topic_ids":{"a":"1"},"leader_epochs":{"a":[[0,"0"]]},"logged_as":"1@1","joint":{"numbers":"several-a","parts":{"several-a":[1,"53c4347f680e1dfa","bf449e53f738"],"several-b":[1,"b55233a323a38398","3f044cc65def"]}}}}');
INSERT INTO "kafka_tx_state" VALUES('several-b','owner','{"v":3,"kind":"owner","crc":"2fed44ba","data":"1f43dc54d5095734"}');
INSERT INTO "kafka_tx_state" VALUES('several-b','alive','{"v":3,"kind":"alive","crc":"262e1855","data":"ddf879b9"}');
INSERT INTO "kafka_tx_state" VALUES('several-b','committed','{"v":3,"kind":"committed","crc":"64221698","data":{"txid":1,"offsets":{"b":{"0":5}},"topic_ids":{"b":"2"},"completed_ms":1700000000000,"leader_epochs":{"b":[[0,"0"]]}}}');
INSERT INTO "kafka_tx_state" VALUES('several-b','currtx','{"v":3,"kind":"currtx","crc":"5c2b2b4b","data":2}');
INSERT INTO "kafka_tx_state" VALUES('several-b','numbering','{"v":3,"kind":"numbering","crc":"baa617a7","data":{"name":"3f044cc65def","door":"source"}}');
INSERT INTO "kafka_tx_state" VALUES('several-b','meta/1','{"v":3,"kind":"batch","crc":"4628b233","data":{"txid":1,"ranges":{"b":{"0":[0,5]}},"topic_ids":{"b":"2"},"leader_epochs":{"b":[[0,"0"]]},"logged_as":"1@1","joint":{"numbers":"several-a","parts":{"several-a":[1,"53c4347f680e1dfa","bf449e53f738"],"several-b":[1,"b55233a323a38398","3f044cc65def"]}}}}');
INSERT INTO "kafka_tx_state" VALUES('several-a','asked','{"v":3,"kind":"asked","crc":"5ca4f392","data":true}');
INSERT INTO "kafka_tx_state" VALUES('several-b','asked','{"v":3,"kind":"asked","crc":"5ca4f392","data":true}');
INSERT INTO "kafka_tx_state" VALUES('several-a','query','{"v":3,"kind":"query","crc":"5e72729e","data":{"numbered":["several-a","several-b"],"others":[],"states":[],"numberings":["bf449e53f738","3f044cc65def"]}}');
INSERT INTO "kafka_tx_state" VALUES('several-b','query','{"v":3,"kind":"query","crc":"5e72729e","data":{"numbered":["several-a","several-b"],"others":[],"states":[],"numberings":["bf449e53f738","3f044cc65def"]}}');
INSERT INTO "kafka_tx_state" VALUES('several-a','held','{"v":3,"kind":"held","crc":"0b7388dd","data":[{"txid":1,"epoch":1,"committed_ms":1700000000000,"attempts":1}]}');
INSERT INTO "kafka_tx_state" VALUES('several-a','meta/2','{"v":3,"kind":"batch","crc":"c9869b43","data":{"txid":2,"ranges":{"a":{"0":[5,7]}},"topic_ids":{"a":"1"},"leader_epochs":{"a":[[0,"0"]]},"logged_as":"2@1","joint":{"numbers":"several-a","parts":{"several-a":[2,"e06251d321b69196","bf449e53f738"],"several-b":[2,"f9c649f6a11bfb2f","3f044cc65def"]}}}}');
INSERT INTO "kafka_tx_state" VALUES('several-b','held','{"v":3,"kind":"held","crc":"0b7388dd","data":[{"txid":1,"epoch":1,"committed_ms":1700000000000,"attempts":1}]}');
INSERT INTO "kafka_tx_state" VALUES('several-b','meta/2','{"v":3,"kind":"batch","crc":"1ddc65b8","data":{"txid":2,"ranges":{"b":{"0":[5,7]}},"topic_ids":{"b":"2"},"leader_epochs":{"b":[[0,"0"]]},"logged_as":"2@1","joint":{"numbers":"several-a","parts":{"several-a":[2,"e06251d321b69196","bf449e53f738"],"several-b":[2,"f9c649f6a11bfb2f","3f044cc65def"]}}}}');
INSERT INTO "kafka_tx_state" VALUES('fenced','owner','{"v":3,"kind":"owner","crc":"172842e2","data":"5dcc80ac9f8e6a84"}');
INSERT INTO "kafka_tx_state" VALUES('fenced','alive','{"v":3,"kind":"alive","crc":"cebe8efa","data":"f2423587"}');
INSERT INTO "kafka_tx_state" VALUES('fenced','committed','{"v":3,"kind":"committed","crc":"5bb364a7","data":{"txid":1,"offsets":{"a":{"0":2},"b":{"0":2}},"topic_ids":{"a":"1","b":"2"},"completed_ms":1700000000000,"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]}}}');
INSERT INTO "kafka_tx_state" VALUES('fenced','currtx','{"v":3,"kind":"currtx","crc":"5c2b2b4b","data":2}');
INSERT INTO "kafka_tx_state" VALUES('fenced','numbering','{"v":3,"kind":"numbering","crc":"743559fc","data":{"name":"c63a37e1c81e","door":"source"}}');
INSERT INTO "kafka_tx_state" VALUES('fenced','meta/1','{"v":3,"kind":"batch","crc":"b6e444cd","data":{"txid":1,"ranges":{"a":{"0":[0,2]},"b":{"0":[0,2]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]},"logged_as":"1@1"}}');
INSERT INTO "kafka_tx_state" VALUES('fenced','asked','{"v":3,"kind":"asked","crc":"5ca4f392","data":true}');
INSERT INTO "kafka_tx_state" VALUES('fenced','query','{"v":3,"kind":"query","crc":"8e77088b","data":{"numbered":["fenced"],"others":[],"states":[],"numberings":[]}}');
INSERT INTO "kafka_tx_state" VALUES('fenced','held','{"v":3,"kind":"held","crc":"0b7388dd","data":[{"txid":1,"epoch":1,"committed_ms":1700000000000,"attempts":1}]}');
INSERT INTO "kafka_tx_state" VALUES('fenced','meta/2','{"v":3,"kind":"batch","crc":"641c22e4","data":{"txid":2,"ranges":{"a":{"0":[2,4]},"b":{"0":[2,4]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]},"logged_as":"2@1","attempts":2}}');
INSERT INTO "kafka_tx_state" VALUES('topology_planned','owner','{"v":3,"kind":"owner","crc":"7521474b","data":"2ecd7ee6f449ca65"}');
INSERT INTO "kafka_tx_state" VALUES('topology_planned','numbering','{"v":3,"kind":"numbering","crc":"a8c45461","data":{"name":"25b4a560963b","door":"transactional topology"}}');
INSERT INTO "kafka_tx_state" VALUES('topology_planned','meta/1','{"v":3,"kind":"batch","crc":"bd0daa74","data":{"txid":1,"ranges":{"a":{"0":[0,2]},"b":{"0":[0,2]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]}}}');
INSERT INTO "kafka_tx_state" VALUES('topology_written','owner','{"v":3,"kind":"owner","crc":"e6910f6f","data":"df1a5d7f1cc4bce0"}');
INSERT INTO "kafka_tx_state" VALUES('topology_written','numbering','{"v":3,"kind":"numbering","crc":"990b3f76","data":{"name":"9d1f2948ef9d","door":"transactional topology"}}');
INSERT INTO "kafka_tx_state" VALUES('topology_written','meta/1','{"v":3,"kind":"batch","crc":"bd0daa74","data":{"txid":1,"ranges":{"a":{"0":[0,2]},"b":{"0":[0,2]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]}}}');
INSERT INTO "kafka_tx_state" VALUES('topology_written','currtx','{"v":3,"kind":"currtx","crc":"5c2b2b4b","data":2}');
INSERT INTO "kafka_tx_state" VALUES('topology_written','meta/2','{"v":3,"kind":"batch","crc":"3f165018","data":{"txid":2,"ranges":{"a":{"0":[2,4]},"b":{"0":[2,4]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]}}}');
INSERT INTO "kafka_tx_state" VALUES('topology_opaque','owner','{"v":3,"kind":"owner","crc":"85b6c367","data":"5e033a62ae259713"}');
INSERT INTO "kafka_tx_state" VALUES('topology_opaque','numbering','{"v":3,"kind":"numbering","crc":"1850ec11","data":{"name":"f7a6a4207fd9","door":"transactional topology"}}');
INSERT INTO "kafka_tx_state" VALUES('topology_opaque','currtx','{"v":3,"kind":"currtx","crc":"5c2b2b4b","data":2}');
INSERT INTO "kafka_tx_state" VALUES('topology_opaque','meta/1','{"v":3,"kind":"batch","crc":"22ecfa6b","data":{"txid":1,"ranges":{"a":{"0":[0,2]},"b":{"0":[0,2]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]},"mode":"opaque"}}');
INSERT INTO "kafka_tx_state" VALUES('whole','owner','{"v":3,"kind":"owner","crc":"5b0a552b","data":"3abb663b9fe9132f"}');
INSERT INTO "kafka_tx_state" VALUES('whole','committed','{"v":3,"kind":"committed","crc":"598bde43","data":{"txid":1,"offsets":{"a":{"0":5}},"topic_ids":{"a":"AAAAAAAAAAAAAAAAAAAAAA"},"completed_ms":1700000000000,"empty":1,"leader_epochs":{"a":[[4,"0"]]}}}');
INSERT INTO "kafka_tx_state" VALUES('whole','currtx','{"v":3,"kind":"currtx","crc":"5c2b2b4b","data":2}');
INSERT INTO "kafka_tx_state" VALUES('whole','numbering','{"v":3,"kind":"numbering","crc":"284974d2","data":{"name":"95cb5a6674c3","door":"source"}}');
INSERT INTO "kafka_tx_state" VALUES('whole','meta/1','{"v":3,"kind":"batch","crc":"6452d637","data":{"txid":1,"ranges":{"a":{"0":[5,5]}},"topic_ids":{"a":"AAAAAAAAAAAAAAAAAAAAAA"},"leader_epochs":{"a":[[4,"0"]]},"spark_batch":"q:1"}}');
INSERT INTO "kafka_tx_state" VALUES('whole','held','{"v":3,"kind":"held","crc":"cf249a87","data":[{"txid":1,"epoch":1,"committed_ms":1700000000000,"attempts":1,"records":2,"bytes":20,"newest_ms":1700000000000,"skipped_by_tasks":{"retention":{"a":{"0":1}}},"letters":{"a":{"0":1}},"tables":[{"txid":1,"table":"t","sink":"s","version":"3","files":1,"rows":2,"location":"","seconds":0.5}],"took_ms":[1.5,0,0,0]}]}');
INSERT INTO "kafka_tx_state" VALUES('whole','meta/2','{"v":3,"kind":"batch","crc":"f561c135","data":{"txid":2,"ranges":{"a":{"0":[5,9]},"b":{"0":[1,3,"AAAAAAAAAAAAAAAAAAAAAA"]}},"topic_ids":{"a":"AAAAAAAAAAAAAAAAAAAAAA","b":"BBBBBBBBBBBBBBBBBBBBBB"},"leader_epochs":{"a":[[4,"0"]]},"logged":{"a":{"0":10}},"logged_as":"2.1","was_opaque":true,"joint":{"numbers":"whole","parts":{"KafkaTx[other]":[0,"cd",""],"whole":[2,"ab","0123456789ab"]}},"mode":"opaque","skipped":{"retention":{"a":{"0":2}}},"awaited":[["a",1]],"unproven":[3],"schemas":{"value":"7"},"attempts":2}}');
INSERT INTO "kafka_tx_state" VALUES('whole','meta/3','{"v":3,"kind":"batch","crc":"6770a634","data":{"txid":3,"ranges":{},"topic_ids":{"a":"AAAAAAAAAAAAAAAAAAAAAA"},"spark_batch":"query:7"}}');
INSERT INTO "kafka_tx_state" VALUES('whole','query','{"v":3,"kind":"query","crc":"6cf67db5","data":{"numbered":["whole"],"others":["KafkaTx[other]"],"states":["StateStoreSave"],"numberings":["0123456789ab"]}}');
INSERT INTO "kafka_tx_state" VALUES('whole','asked','{"v":3,"kind":"asked","crc":"5ca4f392","data":true}');
INSERT INTO "kafka_tx_state" VALUES('whole','alive','{"v":3,"kind":"alive","crc":"b2d42af3","data":"ebe20403"}');
INSERT INTO "kafka_tx_state" VALUES('whole','stop','{"v":3,"kind":"stop","crc":"d36f6ac8","data":{"reason":"error","error":"it failed","at_ms":1700000000000}}');
INSERT INTO "kafka_tx_state" VALUES('moved','owner','{"v":3,"kind":"owner","crc":"81eccf2f","data":"559d0724eb0530d5"}');
INSERT INTO "kafka_tx_state" VALUES('moved','meta/1','{"v":3,"kind":"batch","crc":"fe3ab2a7","data":{"txid":1,"ranges":{},"topic_ids":{}}}');
INSERT INTO "kafka_tx_state" VALUES('moved','numbering','{"v":3,"kind":"numbering","crc":"c92bc32a","data":{"name":"aa3529813dfe","door":"source","moved_to":"memory:elsewhere"}}');
CREATE TABLE "rows_fenced" (
	"n" BIGINT
);
INSERT INTO "rows_fenced" VALUES(0);
INSERT INTO "rows_fenced" VALUES(1);
INSERT INTO "rows_fenced" VALUES(7);
INSERT INTO "rows_fenced" VALUES(8);
INSERT INTO "rows_fenced" VALUES(2);
INSERT INTO "rows_fenced" VALUES(3);
INSERT INTO "rows_fenced" VALUES(9);
INSERT INTO "rows_fenced" VALUES(10);
CREATE TABLE "rows_opaque" (
	"n" BIGINT, 
	"txid" BIGINT
);
INSERT INTO "rows_opaque" VALUES(0,1);
INSERT INTO "rows_opaque" VALUES(1,1);
INSERT INTO "rows_opaque" VALUES(7,1);
INSERT INTO "rows_opaque" VALUES(8,1);
INSERT INTO "rows_opaque" VALUES(2,2);
INSERT INTO "rows_opaque" VALUES(3,2);
INSERT INTO "rows_opaque" VALUES(9,2);
INSERT INTO "rows_opaque" VALUES(10,2);
CREATE TABLE "rows_planned" (
	"n" BIGINT
);
INSERT INTO "rows_planned" VALUES(0);
INSERT INTO "rows_planned" VALUES(1);
INSERT INTO "rows_planned" VALUES(7);
INSERT INTO "rows_planned" VALUES(8);
CREATE TABLE "rows_several" (
	"n" BIGINT
);
INSERT INTO "rows_several" VALUES(0);
INSERT INTO "rows_several" VALUES(1);
INSERT INTO "rows_several" VALUES(2);
INSERT INTO "rows_several" VALUES(3);
INSERT INTO "rows_several" VALUES(4);
INSERT INTO "rows_several" VALUES(7);
INSERT INTO "rows_several" VALUES(8);
INSERT INTO "rows_several" VALUES(9);
INSERT INTO "rows_several" VALUES(10);
INSERT INTO "rows_several" VALUES(11);
INSERT INTO "rows_several" VALUES(5);
INSERT INTO "rows_several" VALUES(6);
INSERT INTO "rows_several" VALUES(12);
INSERT INTO "rows_several" VALUES(13);
CREATE TABLE "rows_topology_opaque" (
	"n" BIGINT, 
	"txid" BIGINT
);
INSERT INTO "rows_topology_opaque" VALUES(0,1);
INSERT INTO "rows_topology_opaque" VALUES(1,1);
INSERT INTO "rows_topology_opaque" VALUES(7,1);
INSERT INTO "rows_topology_opaque" VALUES(8,1);
INSERT INTO "rows_topology_opaque" VALUES(2,2);
INSERT INTO "rows_topology_opaque" VALUES(3,2);
INSERT INTO "rows_topology_opaque" VALUES(9,2);
INSERT INTO "rows_topology_opaque" VALUES(10,2);
CREATE TABLE "rows_topology_planned" (
	"n" BIGINT
);
INSERT INTO "rows_topology_planned" VALUES(0);
INSERT INTO "rows_topology_planned" VALUES(1);
INSERT INTO "rows_topology_planned" VALUES(7);
INSERT INTO "rows_topology_planned" VALUES(8);
CREATE TABLE "rows_topology_written" (
	"n" BIGINT
);
INSERT INTO "rows_topology_written" VALUES(0);
INSERT INTO "rows_topology_written" VALUES(1);
INSERT INTO "rows_topology_written" VALUES(7);
INSERT INTO "rows_topology_written" VALUES(8);
INSERT INTO "rows_topology_written" VALUES(2);
INSERT INTO "rows_topology_written" VALUES(3);
INSERT INTO "rows_topology_written" VALUES(9);
INSERT INTO "rows_topology_written" VALUES(10);
CREATE TABLE "rows_written" (
	"n" BIGINT
);
INSERT INTO "rows_written" VALUES(0);
INSERT INTO "rows_written" VALUES(1);
INSERT INTO "rows_written" VALUES(7);
INSERT INTO "rows_written" VALUES(8);
INSERT INTO "rows_written" VALUES(2);
INSERT INTO "rows_written" VALUES(3);
INSERT INTO "rows_written" VALUES(9);
INSERT INTO "rows_written" VALUES(10);
CREATE INDEX kafka_tx_d2d0ba8e52cb54da_txid ON "rows_opaque" ("txid");
CREATE INDEX kafka_tx_2dd43d9a9b708a14_txid ON "rows_topology_opaque" ("txid");
COMMIT;
