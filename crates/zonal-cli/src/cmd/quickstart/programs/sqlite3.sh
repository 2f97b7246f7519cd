for mode in delete wal; do
    said=$(sqlite3 -batch $mode.db <<END | tr '\n' ' '
PRAGMA journal_mode = $mode;
PRAGMA page_size = 4096;
CREATE TABLE reading (id INTEGER PRIMARY KEY, sensor INTEGER, value REAL, note TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
    INSERT INTO reading SELECT i, i % 97, i * 0.5, 'reading number ' || i FROM n;
CREATE INDEX by_sensor ON reading (sensor, value);
UPDATE reading SET value = value * 2 WHERE sensor < 40;
DELETE FROM reading WHERE id % 5 = 0;
VACUUM;
PRAGMA integrity_check;
SELECT count(*) FROM reading;
END
)
    test "$said" = "$mode ok 48000 "
done
echo "120,000 rows, rollback journal, WAL: ok"
