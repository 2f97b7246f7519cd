#!/usr/bin/env bash
# HDFS on zoned drives: a NameNode and three DataNodes on loopback, each DataNode on its own Furrow
# mount of its own emulated drive. Stores a file with three replicas, kills a DataNode and takes its
# drive away, starts it with an empty one, waits until every block has three replicas again, and reads
# the file back. Stops everything it started, however it ends.
#
#   hdfs.sh [MIB]      how much to store; 1024 if not given
#
# Needs root, Java 11 or 17, and Hadoop's jars in the directory HADOOP_JARS, or Maven to fetch them
# there; ends with 69 if they cannot be had. ZONAL names the command.
set -euo pipefail

mib=${1:-1024}
zonal=${ZONAL:-zonal}
version=3.4.1
jars=${HADOOP_JARS:-$HOME/.cache/zonal/hadoop-$version}
# A block of HDFS fills a zone. HDFS wants a multiple of its checksum's 512 bytes.
zone_mib=64
# Three replicas, what Furrow keeps for itself, and room.
zones=$((40 + 2 * mib / zone_mib))
place=$(mktemp -d)
base_port=$((20000 + RANDOM % 10000))
declare -A servers

stop() {
    local code=$?
    trap - EXIT
    # 69: nothing was started.
    ((code == 0 || code == 69)) || tail -n 20 "$place"/*.log >&2
    for server in "${servers[@]}"; do kill -9 "$server" 2>/dev/null || true; done
    wait || true
    for node in 1 2 3; do
        ! mountpoint -q "$place/node$node" || "$zonal" umount "$place/node$node"
    done
    rm -rf "$place"
    exit "$code"
}
trap stop EXIT
trap 'exit 1' INT TERM

dependency() { echo "<dependency><groupId>$1</groupId><artifactId>$2</artifactId><version>$3</version></dependency>"; }

fetch() {
    [ ! -e "$jars/hadoop-hdfs-client-$version.jar" ] || return 0
    mkdir -p "$jars"
    {
        echo "<project><modelVersion>4.0.0</modelVersion><groupId>zonal</groupId>"
        echo "<artifactId>hdfs</artifactId><version>1</version><packaging>pom</packaging><dependencies>"
        # Hadoop leaves it to an older version than jackson-databind needs.
        dependency com.fasterxml.jackson.core jackson-core 2.12.7
        for jar in common hdfs hdfs-client; do
            dependency org.apache.hadoop "hadoop-$jar" "$version"
        done
        echo "</dependencies></project>"
    } > "$place/pom.xml"
    rm -f "$jars"/*.jar
    mvn -B -q -f "$place/pom.xml" dependency:copy-dependencies -DincludeScope=runtime \
        "-DoutputDirectory=$jars" > /dev/null
}

property() { echo "<property><name>$1</name><value>$2</value></property>"; }

# The configuration of one server, in a directory of its own.
configure() {
    local node=$1 port=$((base_port + 10 * $1))
    mkdir -p "$place/conf$node"/webapps/{hdfs,datanode}
    cat > "$place/conf$node/log4j.properties" <<LOG
log4j.rootLogger=WARN,err
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d %p %c: %m%n
LOG
    {
        echo "<configuration>"
        property fs.defaultFS "hdfs://127.0.0.1:$base_port"
        property hadoop.tmp.dir "$place/tmp$node"
        property dfs.replication 3
        property dfs.blocksize $((zone_mib << 20))
        property dfs.namenode.name.dir "$place/name"
        property dfs.namenode.rpc-bind-host 127.0.0.1
        property dfs.namenode.http-address "127.0.0.1:$((base_port + 1))"
        # A DataNode counts as dead after 2 * this + 10 heartbeats.
        property dfs.namenode.heartbeat.recheck-interval 2000
        property dfs.heartbeat.interval 1
        property dfs.namenode.redundancy.interval.seconds 1
        property dfs.namenode.safemode.extension 0
        property dfs.namenode.replication.max-streams 8
        property dfs.namenode.datanode.registration.ip-hostname-check false
        property dfs.datanode.data.dir "$place/node$node/hdfs"
        property dfs.datanode.hostname 127.0.0.1
        property dfs.datanode.address "127.0.0.1:$port"
        property dfs.datanode.ipc.address "127.0.0.1:$((port + 1))"
        property dfs.datanode.http.address "127.0.0.1:$((port + 2))"
        property dfs.client.block.write.replace-datanode-on-failure.policy NEVER
        echo "</configuration>"
    } > "$place/conf$node/hdfs-site.xml"
    cp "$place/conf$node/hdfs-site.xml" "$place/conf$node/core-site.xml"
}

# hadoop NODE CLASS ARGUMENTS...
hadoop() {
    local node=$1 class=$2
    shift 2
    # In a subshell, which becomes it: so its id is that of the server.
    (exec java -Xmx256m -XX:+UseSerialGC -Djava.net.preferIPv4Stack=true \
        -cp "$place/conf$node:$jars/*" "org.apache.hadoop.$class" "$@")
}

start() {
    local node=$1 class=$2
    (exec java -Xmx256m -XX:+UseSerialGC -Djava.net.preferIPv4Stack=true \
        -cp "$place/conf$node:$jars/*" "org.apache.hadoop.$class") > "$place/server$node.log" 2>&1 &
    servers[$node]=$!
}

dfs() { hadoop 0 fs.FsShell "$@" 2>> "$place/client.log"; }

end() {
    kill -9 "${servers[$1]}"
    wait "${servers[$1]}" 2> /dev/null || true
    unset "servers[$1]"
}

# Makes an empty drive and mounts it.
make_drive() {
    local node=$1
    rm -f "$place/drive$node.zns"
    mkdir -p "$place/node$node"
    "$zonal" create "$place/drive$node.zns" --zones "$zones" --zone-size "${zone_mib}MiB" > /dev/null
    "$zonal" mkfs "$place/drive$node.zns" > /dev/null
    "$zonal" mount "$place/drive$node.zns" "$place/node$node" --log "$place/mount$node.log" > /dev/null
}

# Waits until a report of the NameNode says what is wanted, and says how long it took.
wait_for() {
    local what=$1 wanted=$2 begin=$SECONDS
    shift 2
    until "$@" 2>/dev/null | grep -Eq "$wanted"; do
        if ((SECONDS - begin > 600)); then
            echo "$what: not within ten minutes" >&2
            exit 1
        fi
        sleep 1
    done
    echo "$what: $((SECONDS - begin)) s"
}

report() { hadoop 0 hdfs.tools.DFSAdmin -report -live; }
blocks() { hadoop 0 hdfs.tools.DFSck /; }

# Bytes to the drive for each byte of files.
amplification() {
    for node in 1 2 3; do
        "$zonal" stats "$place/node$node" --json | awk -v node="$node" '
            /"(user|meta|reclaim)_bytes"/ { gsub(/[",:]/, ""); if (!($1 in n)) n[$1] = $2 }
            END {
                user = n["user_bytes"]
                printf "drive %d: %d MiB of files, amplification %.3f\n", node, user / 1048576,
                    (user + n["meta_bytes"] + n["reclaim_bytes"]) / user
            }'
    done
}

command -v java > /dev/null || { echo "there is no Java" >&2; exit 69; }
fetch || { echo "Hadoop's jars cannot be fetched: Maven is not there, or fails" >&2; exit 69; }
for node in 0 1 2 3; do configure $node; done
for node in 1 2 3; do make_drive $node; done
hadoop 0 hdfs.server.namenode.NameNode -format -nonInteractive > "$place/format.log" 2>&1
start 0 hdfs.server.namenode.NameNode
for node in 1 2 3; do start $node hdfs.server.datanode.DataNode; done
wait_for "three DataNodes are up" "Live datanodes \(3\)" report

head -c "${mib}M" /dev/urandom > "$place/file"
begin=$SECONDS
dfs -put "$place/file" /file
echo "stored $mib MiB three times: $((SECONDS - begin)) s"
begin=$SECONDS
dfs -cat /file | cmp - "$place/file"
echo "read it, identical: $((SECONDS - begin)) s"
amplification

end 3
"$zonal" umount "$place/node3"
wait_for "the NameNode knows that a DataNode is dead" "Live datanodes \(2\)" report
dfs -cat /file | cmp - "$place/file"
echo "two replicas: identical"
make_drive 3
start 3 hdfs.server.datanode.DataNode
wait_for "three DataNodes are up, one with an empty drive" "Live datanodes \(3\)" report
wait_for "every block has three replicas again" "Under-replicated blocks:[[:space:]]+0 " blocks

# Only what was replicated is read now.
for node in 1 2; do end $node; done
dfs -cat /file | cmp - "$place/file"
echo "read from the new drive alone, identical"
amplification
for node in 3 0; do end $node; done
for node in 1 2 3; do
    "$zonal" umount "$place/node$node"
    "$zonal" check "$place/drive$node.zns"
done
