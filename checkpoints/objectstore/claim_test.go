package objectstore_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/checkpoints/objectstore/storetest"
)

// TestClaims: exactly one of many has a claim, at its start and when it is stale; one
// that is released is free at once, and who has lost his claim is told so.
func TestClaims(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		race := func(claims objectstore.Claims) (winner *objectstore.Claim) {
			t.Helper()
			const racers = 8
			var wg sync.WaitGroup
			var mu sync.Mutex
			won := 0
			for range racers {
				store := open(t, s)
				wg.Go(func() {
					c, err := claims.Take(t.Context(), store, "work")
					mu.Lock()
					defer mu.Unlock()
					var taken *objectstore.ClaimedError
					switch {
					case err == nil:
						winner, won = c, won+1
					case !errors.Is(err, objectstore.ErrClaimed) || !errors.As(err, &taken) || taken.Sign == "":
						t.Errorf("a loser got %v", err)
					}
				})
			}
			wg.Wait()
			if won != 1 {
				t.Fatalf("%d of %d have the claim", won, racers)
			}
			return winner
		}
		idle := objectstore.Claims{Beat: time.Hour}
		first := race(idle)
		_, err := idle.Take(t.Context(), open(t, s), "work")
		if err == nil || !strings.Contains(err.Error(), "process ") || !strings.Contains(err.Error(), "ago") {
			t.Errorf("error %v, want it to say whose claim it is", err)
		}
		s.Age(t, "work/claim-000001", 2*time.Minute) // not yet stale
		if _, err := idle.Take(t.Context(), open(t, s), "work"); !errors.Is(err, objectstore.ErrClaimed) {
			t.Fatalf("a claim 2 minutes old: error %v", err)
		}
		s.Age(t, "work/claim-000001", 4*time.Minute)
		second := race(idle)
		if err := first.Held(t.Context()); !errors.Is(err, objectstore.ErrClaimLost) {
			t.Errorf("the stale owner: error %v, want ErrClaimLost", err)
		}
		if err := first.Release(t.Context()); err != nil { // which must not touch the second's
			t.Error(err)
		}
		if err := second.Held(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := second.Release(t.Context()); err != nil || second.Context().Err() == nil {
			t.Fatalf("release: error %v, context %v", err, second.Context().Err())
		}
		third := race(objectstore.Claims{Beat: 20 * time.Millisecond})
		sign := func() string {
			_, err := idle.Take(t.Context(), open(t, s), "work")
			var taken *objectstore.ClaimedError
			if !errors.As(err, &taken) {
				t.Fatalf("error %v, want a ClaimedError", err)
			}
			return taken.Sign
		}
		for before, end := sign(), time.Now().Add(20*time.Second); sign() == before; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("no sign of life")
			}
		}
		third.Stop()
		s.Age(t, "work/claim-000003", time.Hour)
		alive, err := objectstore.Claims{Beat: 10 * time.Millisecond}.Take(t.Context(), open(t, s), "work")
		if err != nil {
			t.Fatal(err)
		}
		defer alive.Stop()
		// As another who has found it stale.
		if err := open(t, s).Put(t.Context(), "work/claim-000005", strings.NewReader("{}"), objectstore.PutOptions{New: true}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-alive.Context().Done():
		case <-time.After(20 * time.Second):
			t.Fatal("the work goes on without the claim")
		}
	})
}
