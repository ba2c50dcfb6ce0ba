import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium's initial snapshot of one table, its records counted and thrown away.
 * Arguments: port, database, table, slot, rows. Prints the seconds from the engine's start to the last row.
 */
class Snapshot {
    static long seen = 0;
    static double took = -1;

    public static void main(String[] args) throws Exception {
        long rows = Long.parseLong(args[4]);
        Properties given = new Properties();
        given.setProperty("name", "peer");
        given.setProperty("connector.class", "io.debezium.connector.postgresql.PostgresConnector");
        given.setProperty("offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore");
        given.setProperty("offset.flush.interval.ms", "1000");
        given.setProperty("topic.prefix", "peer");
        given.setProperty("database.hostname", "127.0.0.1");
        given.setProperty("database.port", args[0]);
        given.setProperty("database.user", "postgres");
        given.setProperty("database.password", "none");
        given.setProperty("database.dbname", args[1]);
        given.setProperty("table.include.list", args[2]);
        given.setProperty("plugin.name", "pgoutput");
        given.setProperty("slot.name", args[3]);
        given.setProperty("slot.drop.on.stop", "true");
        given.setProperty("publication.name", args[3]);
        given.setProperty("publication.autocreate.mode", "filtered");
        given.setProperty("snapshot.mode", "initial");
        // larger than the defaults, which would make it slower
        given.setProperty("snapshot.fetch.size", "20000");
        given.setProperty("max.batch.size", "16384");
        given.setProperty("max.queue.size", "65536");

        DebeziumEngine<RecordChangeEvent<SourceRecord>>[] engine = new DebeziumEngine[1];
        long began = System.nanoTime();
        engine[0] = DebeziumEngine.create(ChangeEventFormat.of(Connect.class))
            .using(given)
            .notifying((List<RecordChangeEvent<SourceRecord>> batch,
                    DebeziumEngine.RecordCommitter<RecordChangeEvent<SourceRecord>> committer) -> {
                for (RecordChangeEvent<SourceRecord> one : batch) {
                    committer.markProcessed(one);
                }
                committer.markBatchFinished();
                seen += batch.size();
                if (seen >= rows && took < 0) {
                    took = (System.nanoTime() - began) / 1e9;
                    new Thread(() -> {
                        try {
                            engine[0].close();
                        } catch (Exception failed) {
                            System.err.println(failed);
                        }
                    }).start();
                }
            })
            .build();
        engine[0].run();
        System.out.println(seen + " " + took);
        System.exit(took < 0 ? 1 : 0);
    }
}
