package training

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/model"
)

// ReadPairs reads the pair files that PairFiles finds, whose responses must be the
// model's, and puts what they are into contents.
func ReadPairs(ctx context.Context, m *model.Model, paths []string, contents *datasets.Contents, s3 objectstore.Settings, log io.Writer) ([]datasets.Pair, error) {
	files, err := PairFiles(ctx, paths, s3, log)
	if err != nil {
		return nil, err
	}
	var all []datasets.Pair
	parts := make(map[datasets.PairHeader]int) // shards read, by the set that they belong to
	first := make(map[string]shardOf)          // of each folder
	for _, x := range files {
		file := x.Path
		if err := contents.Add(ctx, x.Name, file); err != nil {
			return nil, err
		}
		h, pairs, err := datasets.ReadPairs(file)
		if err != nil {
			return nil, err
		}
		known, err := m.KnownAs(ctx, h.WeightsSHA256)
		if err != nil {
			return nil, err
		}
		if h.WeightsSHA256 != known {
			return nil, fmt.Errorf("%s: responses of model %s (weights %.12s…), want those of %s (weights %.12s…): the target is the attention of the model's own responses", file, h.Model, h.WeightsSHA256, m.Name, known)
		}
		if h.WeightsSHA256, err = m.SHA256(ctx); err != nil { // by one name in all shards
			return nil, err
		}
		set := h.Settings()
		parts[set]++
		if folder := filepath.Dir(file); h.Shards > 1 {
			if other, ok := first[folder]; ok && other.set != set {
				return nil, fmt.Errorf("%s: shard of other settings than %s beside it: %+v, want %+v: name the files of one set, or keep the sets in folders of their own", file, other.file, set, other.set)
			}
			first[folder] = shardOf{file, set}
		}
		for _, p := range pairs {
			if err := p.CheckIDs(m.Config.Vocab); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if len(p.PromptIDs)+len(p.ResponseIDs) > m.Config.MaxPositions {
				return nil, fmt.Errorf("%s: sample %s: %d prompt and %d response tokens, want at most %d together: %w", file, p.ID, len(p.PromptIDs), len(p.ResponseIDs), m.Config.MaxPositions, model.ErrContext)
			}
		}
		all = append(all, pairs...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: %w", strings.Join(paths, ", "), datasets.ErrEmpty)
	}
	for set, n := range parts {
		if n < set.Shards {
			fmt.Fprintf(log, "training on %d of %d shards of %s\n", n, set.Shards, strings.Join(paths, ", "))
		}
	}
	return all, nil
}

// shardOf is a file of a set of shards.
type shardOf struct {
	file string
	set  datasets.PairHeader
}

// PairFile is a file of pairs.
type PairFile struct {
	Name string // the path or URL, or "-"
	Path string // of a local file
}

// PairFiles are the files and all *.jsonl of the folders. Those of buckets are copies in
// the cache, and "-" is standard input.
func PairFiles(ctx context.Context, paths []string, s3 objectstore.Settings, log io.Writer) ([]PairFile, error) {
	var files []PairFile
	for _, name := range paths {
		if objectstore.IsURL(name) {
			copies, err := objectstore.LocalFiles(ctx, name, ".jsonl", s3, log)
			if err != nil {
				return nil, fmt.Errorf("training samples: %w", err)
			}
			for _, file := range copies {
				url := name
				if !strings.HasSuffix(url, ".jsonl") {
					url = strings.TrimSuffix(url, "/") + "/" + filepath.Base(file)
				}
				files = append(files, PairFile{url, file})
			}
			continue
		}
		path, err := objectstore.LocalData(ctx, name, s3, log)
		if err != nil {
			return nil, fmt.Errorf("training samples: %w", err)
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("training samples: %w", err)
		}
		if !info.IsDir() {
			files = append(files, PairFile{name, path})
			continue
		}
		shards, err := fs.Glob(os.DirFS(path), "*.jsonl")
		if err != nil {
			return nil, err
		}
		if len(shards) == 0 {
			return nil, fmt.Errorf("training samples: %s is a directory without *.jsonl files", path)
		}
		for _, shard := range shards {
			file := filepath.Join(path, shard)
			files = append(files, PairFile{file, file})
		}
	}
	return files, nil
}

// HoldOutPairs takes n pairs out of a list. Which ones depends on their prompts alone, so
// that a prompt that is there twice is on one side, and so that runs on the same data
// hold out the same.
func HoldOutPairs(pairs []datasets.Pair, n int) (rest, held []datasets.Pair) {
	if n == 0 {
		return pairs, nil
	}
	keys := make([][sha256.Size]byte, len(pairs))
	for i, p := range pairs {
		var data []byte
		for _, id := range p.PromptIDs {
			data = binary.LittleEndian.AppendUint32(data, uint32(id))
		}
		keys[i] = sha256.Sum256(data)
	}
	sorted := slices.Clone(keys)
	slices.SortFunc(sorted, func(a, b [sha256.Size]byte) int { return bytes.Compare(a[:], b[:]) })
	limit := sorted[n-1]
	for i, p := range pairs {
		if bytes.Compare(keys[i][:], limit[:]) <= 0 {
			held = append(held, p)
		} else {
			rest = append(rest, p)
		}
	}
	if len(rest) == 0 { // all prompts are the same
		return pairs, nil
	}
	return rest, held
}
