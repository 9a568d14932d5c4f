package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/model"
	"glimpse/training"
)

// sources are the training samples and, where there are any, held-out ones.
func (s *spec) sources(ctx context.Context, m *model.Model, hash string, log io.Writer) (source, held training.Source, err error) {
	v := &s.Train.Validation
	if len(s.Data) == 0 {
		if len(s.HeldOut) > 0 {
			return nil, nil, fmt.Errorf("train: --held-out needs --data: synthetic prompts have held-out ones of their own")
		}
		fresh, err := newStream(m, s.Model, s.Tasks, "train", s.Tokens, s.Train.Seed)
		if err != nil {
			return nil, nil, err
		}
		validation, err := newStream(m, s.Model, s.Tasks, "validation", s.Tokens, s.Train.Seed)
		if err != nil {
			return nil, nil, err
		}
		return training.Fresh{Stream: fresh}, training.Fresh{Stream: validation}, nil
	}
	pairs, err := s.readPairs(ctx, m, hash, s.Data, log)
	if err != nil {
		return nil, nil, err
	}
	name := strings.Join(s.Data, ", ")
	var heldPairs []datasets.Pair
	if len(s.HeldOut) > 0 {
		if heldPairs, err = s.readPairs(ctx, m, hash, s.HeldOut, log); err != nil {
			return nil, nil, err
		}
		v.Samples = min(v.Samples, len(heldPairs))
	} else {
		pairs, heldPairs = holdOut(pairs, min(v.Samples, len(pairs)/10))
		if v.Every > 0 && len(heldPairs) == 0 {
			return nil, nil, fmt.Errorf("train: validation every %d steps: got %d pairs of which one in ten can be held out, want at least 10, or --held-out", v.Every, len(pairs))
		}
		v.Samples = len(heldPairs)
	}
	source = &training.Pairs{Pairs: pairs, Name: name, Seed: s.Train.Seed}
	if len(heldPairs) == 0 {
		return source, nil, nil
	}
	return source, &training.Pairs{Pairs: heldPairs, Name: "held out of " + name, Seed: s.Train.Seed}, nil
}

// readPairs reads pair files, and all *.jsonl of folders, whose responses must be the
// model's own.
func (s *spec) readPairs(ctx context.Context, m *model.Model, hash string, paths []string, log io.Writer) ([]datasets.Pair, error) {
	files, err := s.pairFiles(ctx, paths, log)
	if err != nil {
		return nil, err
	}
	var all []datasets.Pair
	parts := make(map[datasets.PairHeader]int) // shards read, by the set that they belong to
	first := make(map[string]shardOf)          // of each folder
	for _, file := range files {
		h, pairs, err := datasets.ReadPairs(file)
		if err != nil {
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
		if h.WeightsSHA256 != hash {
			return nil, fmt.Errorf("%s: responses of model %s (weights %.12s…), want those of %s (weights %.12s…): the target is the attention of the model's own responses", file, h.Model, h.WeightsSHA256, m.Name, hash)
		}
		for _, p := range pairs {
			if err := p.CheckIDs(m.Config.Vocab); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if len(p.PromptIDs)+len(p.ResponseIDs) > m.Config.MaxPositions {
				return nil, fmt.Errorf("%s: pair %s: %d prompt and %d response tokens, want at most %d together: %w", file, p.ID, len(p.PromptIDs), len(p.ResponseIDs), m.Config.MaxPositions, model.ErrContext)
			}
		}
		all = append(all, pairs...)
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

// pairFiles are the files and all *.jsonl of the folders. Those of buckets are copies in
// the cache.
func (s *spec) pairFiles(ctx context.Context, paths []string, log io.Writer) ([]string, error) {
	var files []string
	for _, path := range paths {
		if objectstore.IsURL(path) {
			copies, err := objectstore.LocalFiles(ctx, path, ".jsonl", s.S3, log)
			if err != nil {
				return nil, fmt.Errorf("training pairs: %w", err)
			}
			files = append(files, copies...)
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("training pairs: %w", err)
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		shards, err := filepath.Glob(filepath.Join(escapeGlob(path), "*.jsonl"))
		if err != nil {
			return nil, err
		}
		if len(shards) == 0 {
			return nil, fmt.Errorf("training pairs: %s is a directory without *.jsonl files", path)
		}
		files = append(files, shards...)
	}
	return files, nil
}

// escapeGlob makes filepath.Glob take a folder's name as it is.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// holdOut takes n pairs out of a list. Which ones depends on their prompts alone, so
// that a prompt that is there twice is on one side, and so that runs on the same data
// hold out the same.
func holdOut(pairs []datasets.Pair, n int) (rest, held []datasets.Pair) {
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
