package objectstore

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ForTests sets what users can't: the size of parts, the first pause of the
// back-off and the number of attempts.
func ForTests(s Settings, partSize int64, pause time.Duration, attempts int) Settings {
	s.partSize, s.pause, s.attempts = partSize, pause, attempts
	return s
}

// DivideChunks makes the ranges that large objects are fetched in smaller by a factor.
func DivideChunks(by int64) { chunkBytes /= by }

// ChunkBytes is the size of these ranges.
func ChunkBytes() int64 { return chunkBytes }

// Impatient shortens the wait for an answer, for tests.
func Impatient(s Settings, silence time.Duration, notice func(string)) Settings {
	s.silence, s.Notice = silence, notice
	return s
}

// UnfinishedUploads counts a key's uploads that were neither finished nor ended.
func UnfinishedUploads(ctx context.Context, s Store, key string) (int, error) {
	ids, err := s.(*bucket).uploads(ctx, key)
	return len(ids), err
}

// ChunksHere counts the chunks of a half-fetched file below a folder.
func ChunksHere(dir, name string) (int, error) {
	found, err := filepath.Glob(filepath.Join(dir, "*", "*", "*", journalName(name)))
	if err != nil || len(found) != 1 {
		return 0, fmt.Errorf("%d journals (%v), want 1", len(found), err)
	}
	text, err := os.ReadFile(found[0])
	return strings.Count(string(text), "\n"), err
}

// Checksum is the hexadecimal checksum of an algorithm of S3.
func Checksum(algorithm string, data []byte) string {
	h := checksums[algorithm]()
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}

// Base64Checksum is Checksum as S3 writes it.
func Base64Checksum(algorithm string, data []byte) string {
	h := checksums[algorithm]()
	h.Write(data)
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// OpenJournal opens the journal of a half-fetched file.
var OpenJournal = openJournal
