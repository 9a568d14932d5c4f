package objectstore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"glimpse/checkpoints"
)

// OpenRegistry reads the registry of a folder or an s3:// name. Links in the folder do not lead out of it. The caller
// calls done when the adapters are read. ErrNotExist if there is no registry.
func OpenRegistry(ctx context.Context, name string, s Settings) (r *checkpoints.Registry, done func(), err error) {
	fail := func(err error) error { return fmt.Errorf("read registry %s: %w", name, err) }
	if IsURL(name) {
		store, folder, err := Open(ctx, name, s)
		if err != nil {
			return nil, nil, err
		}
		if r, err = checkpoints.ReadRegistry(FS(ctx, store, folder)); err != nil {
			return nil, nil, fail(err)
		}
		return r, func() {}, nil
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, nil, fail(err)
	}
	if r, err = checkpoints.ReadRegistry(root.FS()); err != nil {
		root.Close()
		return nil, nil, fail(err)
	}
	return r, func() { root.Close() }, nil
}

// CheckRegistry is an error unless the target of an export lies below the registry, so that it can be listed there.
func CheckRegistry(registry, target string) error {
	_, err := pathBelow(registry, target)
	return err
}

// Register lists an adapter that lies whole at target in the registry of the folder or s3:// name above it, which need
// not be there. Several processes may do so at once; one that is killed leaves the registry as it was or as it is to be.
func Register(ctx context.Context, registry, target string, a *checkpoints.Adapter, s Settings) error {
	path, err := pathBelow(registry, target)
	if err != nil {
		return err
	}
	store, folder, err := Open(ctx, registry, s)
	if err != nil {
		return err
	}
	return store.Update(ctx, Join(folder, checkpoints.RegistryFile), checkpoints.MaxRegistry, func(old []byte) ([]byte, error) {
		r := new(checkpoints.Registry)
		if old != nil {
			if r, err = checkpoints.ParseRegistry(old); err != nil {
				return nil, err
			}
		}
		if err := r.Add(a, path); err != nil {
			return nil, err
		}
		return r.Encode()
	})
}

// pathBelow is the path of a target from a folder above it, with slashes.
func pathBelow(folder, target string) (string, error) {
	var below string
	switch {
	case IsURL(folder) != IsURL(target):
	case IsURL(folder):
		if path, ok := strings.CutPrefix(strings.TrimRight(target, "/"), strings.TrimRight(folder, "/")+"/"); ok {
			below = path
		}
	default:
		from, err := filepath.Abs(folder)
		if err != nil {
			return "", err
		}
		to, err := filepath.Abs(target)
		if err != nil {
			return "", err
		}
		if path, err := filepath.Rel(from, to); err == nil && filepath.IsLocal(path) && path != "." {
			below = filepath.ToSlash(path)
		}
	}
	if below == "" {
		return "", fmt.Errorf("registry %s: the adapter is to be in %s, want a folder below the registry's", folder, target)
	}
	return below, nil
}
