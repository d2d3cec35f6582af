BEGIN TRANSACTION;
CREATE TABLE kafka_tx_offset_owners (
	id VARCHAR(200) NOT NULL, 
	owners TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "kafka_tx_offset_owners" VALUES('at_least_once','{"v":3,"kind":"owners","crc":"9db0b866","data":{"last":2,"tasks":2,"epochs":{"1":1,"0":2},"words":{"1":"888e5c3d","0":"3652ff3c"}}}');
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
INSERT INTO "kafka_tx_progress" VALUES('rows_planned','transactional table',1,1000000000001,1,'80d09a763412435f','7e4a95f80772','planned','f92cd88dbc0ffbeb8693163c54f71466',3);
INSERT INTO "kafka_tx_progress" VALUES('rows_written','transactional table',2,1000000000001,1,'a640e84623e6008c','ef4d77df697c','written','1e8a18e81ff07c3c8148c607f1ec479b',3);
INSERT INTO "kafka_tx_progress" VALUES('rows_opaque','opaque table',2,1000000000001,1,'','eb7673858fbc','opaque','04acdc1ed48b4726bb6be9f214231708',3);
INSERT INTO "kafka_tx_progress" VALUES('rows_several','transactional table',2,1000000000001,1,'aad9e5e39a7d8c85','da7cab3fcb99','several-a','33683ca8d2fd738a8f4645445582cec4',3);
INSERT INTO "kafka_tx_progress" VALUES('rows_fenced','transactional table',2,2000000000001,2,'a640e84623e6008c','05bb40ccf09e','fenced','839ed903adde3635143cfe215380c8df',3);
INSERT INTO "kafka_tx_progress" VALUES('rows_topology_planned','transactional table',1,1000000000002,1,'16a92f3228fefc6b','7a9316bbb09b','topology_planned','7d4b5385377a9a2e6c5ad03871750bc2',3);
INSERT INTO "kafka_tx_progress" VALUES('rows_topology_written','transactional table',2,1000000000004,1,'302db05106e30c10','afd9f2c63507','topology_written','ebd945f5851787df3272b143cf4cac15',3);
INSERT INTO "kafka_tx_progress" VALUES('rows_topology_opaque','opaque table',2,1000000000002,1,'','3a903045f330','topology_opaque','035db652c5ee307137dc6c481092c455',3);
CREATE TABLE kafka_tx_state (
	id VARCHAR(200) NOT NULL, 
	path VARCHAR(500) NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (id, path)
);
INSERT INTO "kafka_tx_state" VALUES('new','owner','{"v":3,"kind":"owner","crc":"b51f5832","data":"d2eace748cddd4b5"}');
INSERT INTO "kafka_tx_state" VALUES('new','alive','{"v":3,"kind":"alive","crc":"0b5d6c05","data":"3b44125d"}');
INSERT INTO "kafka_tx_state" VALUES('new','committed','{"v":3,"kind":"committed","crc":"e1b22c42","data":{"txid":0,"offsets":{"a":{"0":0},"b":{"0":0}},"topic_ids":{"a":"1","b":"2"},"completed_ms":1700000000000}}');
INSERT INTO "kafka_tx_state" VALUES('new','currtx','{"v":3,"kind":"currtx","crc":"c5227af1","data":1}');
INSERT INTO "kafka_tx_state" VALUES('new','numbering','{"v":3,"kind":"numbering","crc":"96a3453a","data":{"name":"65b005a513ce","door":"source"}}');
INSERT INTO "kafka_tx_state" VALUES('planned','owner','{"v":3,"kind":"owner","crc":"f3d9d0cd","data":"70797764785ffd5b"}');
INSERT INTO "kafka_tx_state" VALUES('planned','alive','{"v":3,"kind":"alive","crc":"932566fe","data":"df5bd91b"}');
INSERT INTO "kafka_tx_state" VALUES('planned','committed','{"v":3,"kind":"committed","crc":"5bb364a7","data":{"txid":1,"offsets":{"a":{"0":2},"b":{"0":2}},"topic_ids":{"a":"1","b":"2"},"completed_ms":1700000000000,"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]}}}');
INSERT INTO "kafka_tx_state" VALUES('planned','currtx','{"v":3,"kind":"currtx","crc":"5c2b2b4b","data":2}');
INSERT INTO "kafka_tx_state" VALUES('planned','numbering','{"v":3,"kind":"numbering","crc":"29b1fe7a","data":{"name":"7e4a95f80772","door":"source"}}');
INSERT INTO "kafka_tx_state" VALUES('planned','meta/1','{"v":3,"kind":"batch","crc":"b6e444cd","data":{"txid":1,"ranges":{"a":{"0":[0,2]},"b":{"0":[0,2]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]},"logged_as":"1@1"}}');
INSERT INTO "kafka_tx_state" VALUES('planned','asked','{"v":3,"kind":"asked","crc":"5ca4f392","data":true}');
INSERT INTO "kafka_tx_state" VALUES('planned','query','{"v":3,"kind":"query","crc":"e6de8396","data":{"numbered":["planned"],"others":[],"states":[],"numberings":[]}}');
INSERT INTO "kafka_tx_state" VALUES('planned','held','{"v":3,"kind":"held","crc":"0b7388dd","data":[{"txid":1,"epoch":1,"committed_ms":1700000000000,"attempts":1}]}');
INSERT INTO "kafka_tx_state" VALUES('planned','meta/2','{"v":3,"kind":"batch","crc":"bc9f018c","data":{"txid":2,"ranges":{"a":{"0":[2,4]},"b":{"0":[2,4]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]},"logged_as":"2@1"}}');
INSERT INTO "kafka_tx_state" VALUES('written','owner','{"v":3,"kind":"owner","crc":"a3f50078","data":"3bf3de95733b94fa"}');
INSERT INTO "kafka_tx_state" VALUES('written','alive','{"v":3,"kind":"alive","crc":"e5836962","data":"422ffc3d"}');
INSERT INTO "kafka_tx_state" VALUES('written','committed','{"v":3,"kind":"committed","crc":"5bb364a7","data":{"txid":1,"offsets":{"a":{"0":2},"b":{"0":2}},"topic_ids":{"a":"1","b":"2"},"completed_ms":1700000000000,"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]}}}');
INSERT INTO "kafka_tx_state" VALUES('written','currtx','{"v":3,"kind":"currtx","crc":"5c2b2b4b","data":2}');
INSERT INTO "kafka_tx_state" VALUES('written','numbering','{"v":3,"kind":"numbering","crc":"716f5c7c","data":{"name":"ef4d77df697c","door":"source"}}');
INSERT INTO "kafka_tx_state" VALUES('written','meta/1','{"v":3,"kind":"batch","crc":"b6e444cd","data":{"txid":1,"ranges":{"a":{"0":[0,2]},"b":{"0":[0,2]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]},"logged_as":"1@1"}}');
INSERT INTO "kafka_tx_state" VALUES('written','asked','{"v":3,"kind":"asked","crc":"5ca4f392","data":true}');
INSERT INTO "kafka_tx_state" VALUES('written','query','{"v":3,"kind":"query","crc":"a0c2e701","data":{"numbered":["written"],"others":[],"states":[],"numberings":[]}}');
INSERT INTO "kafka_tx_state" VALUES('written','held','{"v":3,"kind":"held","crc":"0b7388dd","data":[{"txid":1,"epoch":1,"committed_ms":1700000000000,"attempts":1}]}');
INSERT INTO "kafka_tx_state" VALUES('written','meta/2','{"v":3,"kind":"batch","crc":"bc9f018c","data":{"txid":2,"ranges":{"a":{"0":[2,4]},"b":{"0":[2,4]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]},"logged_as":"2@1"}}');
INSERT INTO "kafka_tx_state" VALUES('opaque','owner','{"v":3,"kind":"owner","crc":"cd8cc6db","data":"5bd96360e4968f5b"}');
INSERT INTO "kafka_tx_state" VALUES('opaque','alive','{"v":3,"kind":"alive","crc":"47054b0d","data":"fe0c56b6"}');
INSERT INTO "kafka_tx_state" VALUES('opaque','committed','{"v":3,"kind":"committed","crc":"5bb364a7","data":{"txid":1,"offsets":{"a":{"0":2},"b":{"0":2}},"topic_ids":{"a":"1","b":"2"},"completed_ms":1700000000000,"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]}}}');
INSERT INTO "kafka_tx_state" VALUES('opaque','currtx','{"v":3,"kind":"currtx","crc":"5c2b2b4b","data":2}');
INSERT INTO "kafka_tx_state" VALUES('opaque','numbering','{"v":3,"kind":"numbering","crc":"a85ab304","data":{"name":"eb7673858fbc","door":"source"}}');
INSERT INTO "kafka_tx_state" VALUES('opaque','meta/1','{"v":3,"kind":"batch","crc":"f589d1a7","data":{"txid":1,"ranges":{"a":{"0":[0,2]},"b":{"0":[0,2]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]},"logged_as":"1@1","mode":"opaque"}}');
INSERT INTO "kafka_tx_state" VALUES('opaque','asked','{"v":3,"kind":"asked","crc":"5ca4f392","data":true}');
INSERT INTO "kafka_tx_state" VALUES('opaque','query','{"v":3,"kind":"query","crc":"435cb986","data":{"numbered":["opaque"],"others":[],"states":[],"numberings":[]}}');
INSERT INTO "kafka_tx_state" VALUES('opaque','held','{"v":3,"kind":"held","crc":"0b7388dd","data":[{"txid":1,"epoch":1,"committed_ms":1700000000000,"attempts":1}]}');
INSERT INTO "kafka_tx_state" VALUES('opaque','meta/2','{"v":3,"kind":"batch","crc":"13eb9db4","data":{"txid":2,"ranges":{"a":{"0":[2,4]},"b":{"0":[2,4]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]},"logged_as":"2@1","mode":"opaque"}}');
INSERT INTO "kafka_tx_state" VALUES('several-a','owner','{"v":3,"kind":"owner","crc":"495a8851","data":"01b510f195cb6f05"}');
INSERT INTO "kafka_tx_state" VALUES('several-a','alive','{"v":3,"kind":"alive","crc":"fd24feb5","data":"95e6160a"}');
INSERT INTO "kafka_tx_state" VALUES('several-a','committed','{"v":3,"kind":"committed","crc":"4cd44219","data":{"txid":1,"offsets":{"a":{"0":5}},"topic_ids":{"a":"1"},"completed_ms":1700000000000,"leader_epochs":{"a":[[0,"0"]]}}}');
INSERT INTO "kafka_tx_state" VALUES('several-a','currtx','{"v":3,"kind":"currtx","crc":"5c2b2b4b","data":2}');
INSERT INTO "kafka_tx_state" VALUES('several-a','numbering','{"v":3,"kind":"numbering","crc":"18e90fe0","data":{"name":"da7cab3fcb99","door":"source"}}');
INSERT INTO "kafka_tx_state" VALUES('several-a','meta/1','{"v":3,"kind":"batch","crc":"6bb353b8","data":{"txid":1,"ranges":{"a":{"0":[0,5]}},"topic_ids":{"a":"1"},"leader_epochs":{"a":[[0,"0"]]},"logged_as":"1@1","joint":{"numbers":"several-a","parts":{"several-a":[1,"53c4347f680e1dfa","da7cab3fcb99"],"several-b":[1,"b55233a323a38398","8634a1082a63"]}}}}');
INSERT INTO "kafka_tx_state" VALUES('several-b','owner','{"v":3,"kind":"owner","crc":"47737a64","data":"6835084a5e86537e"}');
INSERT INTO "kafka_tx_state" VALUES('several-b','alive','{"v":3,"kind":"alive","crc":"1b46557b","data":"f111d085"}');
INSERT INTO "kafka_tx_state" VALUES('several-b','committed','{"v":3,"kind":"committed","crc":"64221698","data":{"txid":1,"offsets":{"b":{"0":5}},"topic_ids":{"b":"2"},"completed_ms":1700000000000,"leader_epochs":{"b":[[0,"0"]]}}}');
INSERT INTO "kafka_tx_state" VALUES('several-b','currtx','{"v":3,"kind":"currtx","crc":"5c2b2b4b","data":2}');
INSERT INTO "kafka_tx_state" VALUES('several-b','numbering','{"v":3,"kind":"numbering","crc":"fafcb66b","data":{"name":"8634a1082a63","door":"source"}}');
INSERT INTO "kafka_tx_state" VALUES('several-b','meta/1','{"v":3,"kind":"batch","crc":"bfe9ad43","data":{"txid":1,"ranges":{"b":{"0":[0,5]}},"topic_ids":{"b":"2"},"leader_epochs":{"b":[[0,"0"]]},"logged_as":"1@1","joint":{"numbers":"several-a","parts":{"several-a":[1,"53c4347f680e1dfa","da7cab3fcb99"],"several-b":[1,"b55233a323a38398","8634a1082a63"]}}}}');
INSERT INTO "kafka_tx_state" VALUES('several-a','asked','{"v":3,"kind":"asked","crc":"5ca4f392","data":true}');
INSERT INTO "kafka_tx_state" VALUES('several-b','asked','{"v":3,"kind":"asked","crc":"5ca4f392","data":true}');
INSERT INTO "kafka_tx_state" VALUES('several-a','query','{"v":3,"kind":"query","crc":"92ebb8c1","data":{"numbered":["several-a","several-b"],"others":[],"states":[],"numberings":["da7cab3fcb99","8634a1082a63"]}}');
INSERT INTO "kafka_tx_state" VALUES('several-b','query','{"v":3,"kind":"query","crc":"92ebb8c1","data":{"numbered":["several-a","several-b"],"others":[],"states":[],"numberings":["da7cab3fcb99","8634a1082a63"]}}');
INSERT INTO "kafka_tx_state" VALUES('several-a','held','{"v":3,"kind":"held","crc":"0b7388dd","data":[{"txid":1,"epoch":1,"committed_ms":1700000000000,"attempts":1}]}');
INSERT INTO "kafka_tx_state" VALUES('several-a','meta/2','{"v":3,"kind":"batch","crc":"30478433","data":{"txid":2,"ranges":{"a":{"0":[5,7]}},"topic_ids":{"a":"1"},"leader_epochs":{"a":[[0,"0"]]},"logged_as":"2@1","joint":{"numbers":"several-a","parts":{"several-a":[2,"e06251d321b69196","da7cab3fcb99"],"several-b":[2,"f9c649f6a11bfb2f","8634a1082a63"]}}}}');
INSERT INTO "kafka_tx_state" VALUES('several-b','held','{"v":3,"kind":"held","crc":"0b7388dd","data":[{"txid":1,"epoch":1,"committed_ms":1700000000000,"attempts":1}]}');
INSERT INTO "kafka_tx_state" VALUES('several-b','meta/2','{"v":3,"kind":"batch","crc":"e41d7ac8","data":{"txid":2,"ranges":{"b":{"0":[5,7]}},"topic_ids":{"b":"2"},"leader_epochs":{"b":[[0,"0"]]},"logged_as":"2@1","joint":{"numbers":"several-a","parts":{"several-a":[2,"e06251d321b69196","da7cab3fcb99"],"several-b":[2,"f9c649f6a11bfb2f","8634a1082a63"]}}}}');
INSERT INTO "kafka_tx_state" VALUES('fenced','owner','{"v":3,"kind":"owner","crc":"765e5cf5","data":"67cb4e1384ac2997"}');
INSERT INTO "kafka_tx_state" VALUES('fenced','alive','{"v":3,"kind":"alive","crc":"a8653383","data":"c35e4c77"}');
INSERT INTO "kafka_tx_state" VALUES('fenced','committed','{"v":3,"kind":"committed","crc":"5bb364a7","data":{"txid":1,"offsets":{"a":{"0":2},"b":{"0":2}},"topic_ids":{"a":"1","b":"2"},"completed_ms":1700000000000,"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]}}}');
INSERT INTO "kafka_tx_state" VALUES('fenced','currtx','{"v":3,"kind":"currtx","crc":"5c2b2b4b","data":2}');
INSERT INTO "kafka_tx_state" VALUES('fenced','numbering','{"v":3,"kind":"numbering","crc":"85902ac2","data":{"name":"05bb40ccf09e","door":"source"}}');
INSERT INTO "kafka_tx_state" VALUES('fenced','meta/1','{"v":3,"kind":"batch","crc":"b6e444cd","data":{"txid":1,"ranges":{"a":{"0":[0,2]},"b":{"0":[0,2]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]},"logged_as":"1@1"}}');
INSERT INTO "kafka_tx_state" VALUES('fenced','asked','{"v":3,"kind":"asked","crc":"5ca4f392","data":true}');
INSERT INTO "kafka_tx_state" VALUES('fenced','query','{"v":3,"kind":"query","crc":"8e77088b","data":{"numbered":["fenced"],"others":[],"states":[],"numberings":[]}}');
INSERT INTO "kafka_tx_state" VALUES('fenced','held','{"v":3,"kind":"held","crc":"0b7388dd","data":[{"txid":1,"epoch":1,"committed_ms":1700000000000,"attempts":1}]}');
INSERT INTO "kafka_tx_state" VALUES('fenced','meta/2','{"v":3,"kind":"batch","crc":"641c22e4","data":{"txid":2,"ranges":{"a":{"0":[2,4]},"b":{"0":[2,4]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]},"logged_as":"2@1","attempts":2}}');
INSERT INTO "kafka_tx_state" VALUES('topology_planned','owner','{"v":3,"kind":"owner","crc":"5d2a53b9","data":"60e00626830be4d9"}');
INSERT INTO "kafka_tx_state" VALUES('topology_planned','numbering','{"v":3,"kind":"numbering","crc":"2dcc489d","data":{"name":"7a9316bbb09b","door":"transactional topology"}}');
INSERT INTO "kafka_tx_state" VALUES('topology_planned','meta/1','{"v":3,"kind":"batch","crc":"bd0daa74","data":{"txid":1,"ranges":{"a":{"0":[0,2]},"b":{"0":[0,2]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]}}}');
INSERT INTO "kafka_tx_state" VALUES('topology_written','owner','{"v":3,"kind":"owner","crc":"fc0652dc","data":"4c1b9a1962a40677"}');
INSERT INTO "kafka_tx_state" VALUES('topology_written','numbering','{"v":3,"kind":"numbering","crc":"4a8454d7","data":{"name":"afd9f2c63507","door":"transactional topology"}}');
INSERT INTO "kafka_tx_state" VALUES('topology_written','meta/1','{"v":3,"kind":"batch","crc":"bd0daa74","data":{"txid":1,"ranges":{"a":{"0":[0,2]},"b":{"0":[0,2]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]}}}');
INSERT INTO "kafka_tx_state" VALUES('topology_written','currtx','{"v":3,"kind":"currtx","crc":"5c2b2b4b","data":2}');
INSERT INTO "kafka_tx_state" VALUES('topology_written','meta/2','{"v":3,"kind":"batch","crc":"3f165018","data":{"txid":2,"ranges":{"a":{"0":[2,4]},"b":{"0":[2,4]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]}}}');
INSERT INTO "kafka_tx_state" VALUES('topology_opaque','owner','{"v":3,"kind":"owner","crc":"d812c3ee","data":"2d7ebbdcfc1d93ad"}');
INSERT INTO "kafka_tx_state" VALUES('topology_opaque','numbering','{"v":3,"kind":"numbering","crc":"20c3bd58","data":{"name":"3a903045f330","door":"transactional topology"}}');
INSERT INTO "kafka_tx_state" VALUES('topology_opaque','currtx','{"v":3,"kind":"currtx","crc":"5c2b2b4b","data":2}');
INSERT INTO "kafka_tx_state" VALUES('topology_opaque','meta/1','{"v":3,"kind":"batch","crc":"22ecfa6b","data":{"txid":1,"ranges":{"a":{"0":[0,2]},"b":{"0":[0,2]}},"topic_ids":{"a":"1","b":"2"},"leader_epochs":{"a":[[0,"0"]],"b":[[0,"0"]]},"mode":"opaque"}}');
INSERT INTO "kafka_tx_state" VALUES('whole','owner','{"v":3,"kind":"owner","crc":"8a7511f5","data":"d7cec555e72b0074"}');
INSERT INTO "kafka_tx_state" VALUES('whole','committed','{"v":3,"kind":"committed","crc":"598bde43","data":{"txid":1,"offsets":{"a":{"0":5}},"topic_ids":{"a":"AAAAAAAAAAAAAAAAAAAAAA"},"completed_ms":1700000000000,"empty":1,"leader_epochs":{"a":[[4,"0"]]}}}');
INSERT INTO "kafka_tx_state" VALUES('whole','currtx','{"v":3,"kind":"currtx","crc":"5c2b2b4b","data":2}');
INSERT INTO "kafka_tx_state" VALUES('whole','numbering','{"v":3,"kind":"numbering","crc":"fab0d421","data":{"name":"a98c57283bfc","door":"source"}}');
INSERT INTO "kafka_tx_state" VALUES('whole','meta/1','{"v":3,"kind":"batch","crc":"6452d637","data":{"txid":1,"ranges":{"a":{"0":[5,5]}},"topic_ids":{"a":"AAAAAAAAAAAAAAAAAAAAAA"},"leader_epochs":{"a":[[4,"0"]]},"spark_batch":"q:1"}}');
INSERT INTO "kafka_tx_state" VALUES('whole','held','{"v":3,"kind":"held","crc":"cf249a87","data":[{"txid":1,"epoch":1,"committed_ms":1700000000000,"attempts":1,"records":2,"bytes":20,"newest_ms":1700000000000,"skipped_by_tasks":{"retention":{"a":{"0":1}}},"letters":{"a":{"0":1}},"tables":[{"txid":1,"table":"t","sink":"s","version":"3","files":1,"rows":2,"location":"","seconds":0.5}],"took_ms":[1.5,0,0,0]}]}');
INSERT INTO "kafka_tx_state" VALUES('whole','meta/2','{"v":3,"kind":"batch","crc":"964b9938","data":{"txid":2,"ranges":{"a":{"0":[5,9]},"b":{"0":[1,3,"AAAAAAAAAAAAAAAAAAAAAA"]}},"topic_ids":{"a":"AAAAAAAAAAAAAAAAAAAAAA","b":"BBBBBBBBBBBBBBBBBBBBBB"},"leader_epochs":{"a":[[4,"0"]]},"logged":{"a":{"0":10}},"logged_as":"2.1","was_opaque":true,"joint":{"numbers":"whole","parts":{"KafkaTx[other]":[0,"cd",""],"whole":[2,"ab","0123456789ab"]}},"mode":"opaque","skipped":{"retention":{"a":{"0":2}}},"awaited":[["a",1]],"unproven":[3],"attempts":2}}');
INSERT INTO "kafka_tx_state" VALUES('whole','meta/3','{"v":3,"kind":"batch","crc":"6770a634","data":{"txid":3,"ranges":{},"topic_ids":{"a":"AAAAAAAAAAAAAAAAAAAAAA"},"spark_batch":"query:7"}}');
INSERT INTO "kafka_tx_state" VALUES('whole','query','{"v":3,"kind":"query","crc":"6cf67db5","data":{"numbered":["whole"],"others":["KafkaTx[other]"],"states":["StateStoreSave"],"numberings":["0123456789ab"]}}');
INSERT INTO "kafka_tx_state" VALUES('whole','asked','{"v":3,"kind":"asked","crc":"5ca4f392","data":true}');
INSERT INTO "kafka_tx_state" VALUES('whole','alive','{"v":3,"kind":"alive","crc":"dfab74eb","data":"0369595a"}');
INSERT INTO "kafka_tx_state" VALUES('whole','stop','{"v":3,"kind":"stop","crc":"d36f6ac8","data":{"reason":"error","error":"it failed","at_ms":1700000000000}}');
INSERT INTO "kafka_tx_state" VALUES('moved','owner','{"v":3,"kind":"owner","crc":"ac7e578d","data":"d6f6cc7a68d987d8"}');
INSERT INTO "kafka_tx_state" VALUES('moved','meta/1','{"v":3,"kind":"batch","crc":"fe3ab2a7","data":{"txid":1,"ranges":{},"topic_ids":{}}}');
INSERT INTO "kafka_tx_state" VALUES('moved','numbering','{"v":3,"kind":"numbering","crc":"f0169773","data":{"name":"bab7c094b099","door":"source","moved_to":"memory:elsewhere"}}');
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
