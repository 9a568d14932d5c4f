package outputs

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ShardOf is the one shard that a worker is to do, -1 for any that is free, and how many
// there are: as the flag --shard says, I/N with I from 0, or, where it is "" and there are
// shards, as the environment of an indexed Kubernetes job says.
func ShardOf(shard string, shards int) (index, count int, err error) {
	if shard != "" {
		i, n, ok := strings.Cut(shard, "/")
		index, err := strconv.Atoi(i)
		count, err2 := strconv.Atoi(n)
		if !ok || err != nil || err2 != nil || count < 1 || index < 0 || index >= count {
			return 0, 0, fmt.Errorf("--shard: got %q, want I/N with I from 0 to N-1", shard)
		}
		if shards > 0 && shards != count {
			return 0, 0, fmt.Errorf("--shard %s: of %d shards, but the output has %d", shard, count, shards)
		}
		return index, count, nil
	}
	const name = "JOB_COMPLETION_INDEX"
	text, ok := os.LookupEnv(name)
	if !ok || shards == 0 {
		return -1, shards, nil
	}
	index, err = strconv.Atoi(text)
	if err != nil || index < 0 || index >= shards {
		return 0, 0, fmt.Errorf("%s: got %q, want 0 to %d: as many workers as --shards", name, text, shards-1)
	}
	return index, shards, nil
}
