package objectstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"glimpse/checkpoints"
)

// ErrUnfinished reports a folder that holds part of another export and nothing that
// readers would take for a whole one.
var ErrUnfinished = errors.New("the folder holds part of another export, which was not finished or is going on")

// Publish writes the files to a folder of the store so that readers see all of them
// or none. The last file makes the folder valid. All writers of one kind of folder
// give the files in the same order.
//
// Files that are there with the same content are left as they are, so that an
// export that was killed is finished by repeating it. Created is false where all of
// them were there already. ErrExists if the folder holds another whole export,
// ErrUnfinished if it holds part of one.
func Publish(ctx context.Context, s Store, folder string, files []checkpoints.AdapterFile, progress func(bytes int64)) (created bool, err error) {
	last, claim := Join(folder, files[len(files)-1].Name), claimOf(files)
	// The folder becomes that of this content, unless it is that of another.
	err = s.Put(ctx, Join(folder, claimName), bytes.NewReader(claim), PutOptions{New: true})
	if err == nil || errors.Is(err, ErrExists) {
		err = checkClaim(ctx, s, folder, last, claim)
	}
	if err != nil {
		return false, err
	}
	for _, f := range files {
		if Join(folder, f.Name) == last { // still, or a server whose conditions are not exact let two pass
			if err := checkClaim(ctx, s, folder, last, claim); err != nil {
				return false, err
			}
		}
		key := Join(folder, f.Name)
		src := bytes.NewReader(f.Data)
		err := s.Put(ctx, key, src, PutOptions{New: true, Progress: progress})
		created = err == nil // in the end: of the last file
		if err == nil {
			continue
		}
		if !errors.Is(err, ErrExists) {
			return false, err
		}
		same, compareErr := holds(ctx, s, key, f.Data)
		if compareErr != nil {
			return false, compareErr
		}
		if same {
			continue
		}
		if _, err := s.Stat(ctx, last); !errors.Is(err, ErrNotExist) {
			return false, taken(ctx, s, folder, last)
		}
		// What is there is of a writer that lost the claim, and no reader looks at it yet.
		if err := checkClaim(ctx, s, folder, last, claim); err != nil {
			return false, err
		}
		if err := s.Put(ctx, key, src, PutOptions{Progress: progress}); err != nil {
			return false, err
		}
	}
	return created, nil
}

// claimName is the object that tells writers of one folder whose it is. It is
// one small object, because some servers check the condition of a multipart upload
// some time before they act on it. Readers of adapters pass hidden files over.
const claimName = ".glimpse-export"

// claimOf tells one content from another.
func claimOf(files []checkpoints.AdapterFile) []byte {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%q %d\n", f.Name, len(f.Data))
		h.Write(f.Data)
	}
	return []byte(hex.EncodeToString(h.Sum(nil)) + "\n")
}

func checkClaim(ctx context.Context, s Store, folder, last string, claim []byte) error {
	mine, err := holds(ctx, s, Join(folder, claimName), claim)
	if err == nil && !mine {
		err = taken(ctx, s, folder, last)
	}
	return err
}

// taken says what is in the way: another whole export, or part of one.
func taken(ctx context.Context, s Store, folder, last string) error {
	if _, err := s.Stat(ctx, last); err == nil {
		return fmt.Errorf("publish %s: it holds something else already, and what is published is never replaced; choose another name: %w", s.URL(folder), ErrExists)
	} else if !errors.Is(err, ErrNotExist) {
		return err
	}
	return fmt.Errorf("publish %s: %w; choose another name, or remove the folder first", s.URL(folder), ErrUnfinished)
}

// holds tells that an object has this content. The content itself is read: what the
// store says of it may be as old as the object.
func holds(ctx context.Context, s Store, key string, data []byte) (bool, error) {
	info, err := s.Stat(ctx, key)
	if err != nil || info.Size != int64(len(data)) {
		return false, err
	}
	got, err := Get(ctx, s, key, info.Size)
	if errors.Is(err, ErrDamaged) {
		return false, nil
	}
	return bytes.Equal(got, data), err
}
