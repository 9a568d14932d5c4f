package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// File is a file to publish.
type File struct {
	Name string
	Data []byte
}

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
func Publish(ctx context.Context, s Store, folder string, files []File, progress func(bytes int64)) (created bool, err error) {
	last := Join(folder, files[len(files)-1].Name)
	for _, f := range files {
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
		if _, err := s.Stat(ctx, last); err == nil {
			return false, fmt.Errorf("publish %s: it holds something else already, and what is published is never replaced; choose another name: %w", s.URL(folder), ErrExists)
		} else if !errors.Is(err, ErrNotExist) {
			return false, err
		}
		return false, fmt.Errorf("publish %s: %s: %w; choose another name, or remove the folder first", s.URL(folder), f.Name, ErrUnfinished)
	}
	return created, nil
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
