package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"glimpse/internal/patience"
	"glimpse/internal/progress"
)

// updatePoll is the time between two looks at the claim of another process that updates the same object.
const updatePoll = 300 * time.Millisecond

// Update implements Store. Writers wait for each other at a claim in a hidden folder beside the object: a
// replacement on the condition of an ETag is not known to every server, nor exact in all that know it.
func (b *bucket) Update(ctx context.Context, key string, limit int64, f func(old []byte) ([]byte, error)) (err error) {
	claim, err := b.waitForClaim(ctx, key)
	if err != nil {
		return fmt.Errorf("update %s: %w", b.URL(key), err)
	}
	defer func() { err = errors.Join(err, claim.Release(context.WithoutCancel(ctx))) }()
	return update(claim.Context(), b, key, limit, f)
}

// update replaces an object that nobody else updates meanwhile.
func update(ctx context.Context, s Store, key string, limit int64, f func(old []byte) ([]byte, error)) error {
	old, err := Get(ctx, s, key, limit)
	if err != nil && !errors.Is(err, ErrNotExist) {
		return err
	}
	next, err := f(old)
	if err != nil {
		return fmt.Errorf("update %s: %w", s.URL(key), err)
	}
	return s.Put(ctx, key, bytes.NewReader(next), PutOptions{})
}

// waitForClaim takes the claim of an object's updates, and removes earlier updates' claims.
func (b *bucket) waitForClaim(ctx context.Context, key string) (*Claim, error) {
	folder := Join(path.Dir(key), "."+path.Base(key)+".claims")
	told := false
	for {
		claim, err := Claims{}.Take(ctx, b, folder)
		if err == nil {
			// Between a look and a claim others may have come and gone: only the highest number counts.
			if err = errors.Join(claim.Held(ctx), b.sweepClaims(ctx, folder, claim.number)); err == nil {
				return claim, nil
			}
			claim.Release(context.WithoutCancel(ctx)) // what went wrong is told already
		}
		if !errors.Is(err, ErrClaimed) && !errors.Is(err, ErrClaimLost) {
			return nil, err
		}
		if taken := (*ClaimedError)(nil); !told && errors.As(err, &taken) && taken.Age > time.Second {
			fmt.Fprintf(progress.Stderr, "waiting for another process to write %s, for %v if it has died\n", b.URL(key), claimStale)
			told = true
		}
		if err := patience.Sleep(ctx, backoff(updatePoll, 0)); err != nil {
			return nil, err
		}
	}
}

// sweepClaims removes the claims below a number that is held.
func (b *bucket) sweepClaims(ctx context.Context, folder string, number int) error {
	list, err := b.List(ctx, folder)
	if err != nil {
		return err
	}
	for _, i := range list {
		if n := claimNumber(i.Key); n > 0 && n < number {
			err = errors.Join(err, b.Delete(ctx, i.Key))
		}
	}
	return err
}
