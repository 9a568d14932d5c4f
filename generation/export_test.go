package generation

// Kill leaves a shard as a killed process would: nothing is sent any more, and the
// claim is not released.
func (s *StoredShard) Kill() {
	s.stopSaving()
	s.claim.Stop()
	s.Shard.Release()
}

// SaveNow sends what there is, as happens from time to time.
func (s *StoredShard) SaveNow() error { return s.save(s.Context()) }

var PromptError = promptError
