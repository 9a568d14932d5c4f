package datasets

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// SettingsName is the file that says with which settings the shards of a folder are
// made. The first worker writes it; one with other settings is refused.
const SettingsName = ".settings.json"

const shardPattern = "pairs-*-of-*.jsonl" // well-formed, so that matching is no error

// Settings are the header's, without which of the shards it stands in, and on what device.
func (h PairHeader) Settings() PairHeader {
	h.Shard, h.Device = 0, ""
	return h
}

// Same tells that files are of the same settings and the same shard.
func (h PairHeader) Same(other PairHeader) bool {
	return h.Settings() == other.Settings() && h.Shard == other.Shard
}

// Encode is the first line of a file with the header.
func (h PairHeader) Encode() ([]byte, error) {
	data, err := json.Marshal(h.line())
	return append(data, '\n'), err
}

// CheckSettings is an error unless a settings file, named in it, is the header's.
func (h PairHeader) CheckSettings(name string, data []byte) error {
	r, err := NewPairReader(name, bytes.NewReader(data))
	if err != nil {
		return err
	}
	if got := r.Header(); got.Settings() != h.Settings() {
		return fmt.Errorf("%s: the folder's shards are made with other settings: %+v, want %+v: generate into another folder", name, got, h.Settings())
	}
	return nil
}

// BegunFile is the header of a pair file, whole or interrupted. A damaged one has
// none: who opens it tells.
func BegunFile(path string) (h PairHeader, found bool) {
	if h, found = headerOf(PartialOf(path)); !found {
		h, found = headerOf(path)
	}
	return h, found
}

// BegunShards is the header of a folder's shards, as BegunFile is of a file.
func BegunShards(dir string) (h PairHeader, found bool) {
	if h, found = headerOf(filepath.Join(dir, SettingsName)); found {
		return h, true
	}
	shards, _ := fs.Glob(os.DirFS(dir), shardPattern) // of earlier versions
	if len(shards) == 0 {
		return PairHeader{}, false
	}
	return headerOf(filepath.Join(dir, shards[0]))
}

func headerOf(path string) (PairHeader, bool) {
	r, err := OpenPairs(path)
	if err != nil {
		return PairHeader{}, false
	}
	defer r.Close()
	return r.Header(), true
}

// SameAsShards is an error where a folder holds shards of other settings.
func SameAsShards(dir string, h PairHeader) error {
	shards, _ := fs.Glob(os.DirFS(dir), shardPattern)
	for _, name := range shards {
		path := filepath.Join(dir, name)
		r, err := OpenPairs(path)
		if err != nil {
			return err
		}
		r.Close()
		if got := r.Header().Settings(); got != h.Settings() {
			return fmt.Errorf("%s: is of other settings: %+v, want %+v: generate into another folder", path, got, h.Settings())
		}
	}
	return nil
}
