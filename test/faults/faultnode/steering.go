package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// figures are what a test asks to be sure that its fault took place.
type figures struct {
	WallReads  int64  `json:"wall_reads"` // since the wall clock was last set
	Wall       string `json:"wall"`       // what this process takes the time for
	ClockReads int64  `json:"clock_reads"`
	Drift      int64  `json:"ppm"`
}

// steering is what the control address answers.
func (s *station) steering() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /figures", func(w http.ResponseWriter, _ *http.Request) {
		reads := s.wall.reads.Load()
		f := figures{WallReads: reads, Wall: s.wall.now().UTC().Format(time.RFC3339), ClockReads: s.source.reads.Load()}
		s.wall.reads.Add(-1) // that was ours
		s.source.mu.Lock()
		f.Drift = s.source.ppm
		s.source.mu.Unlock()
		_ = json.NewEncoder(w).Encode(f) // whoever doesn't hear it asks again
	})
	m.HandleFunc("POST /wall", func(w http.ResponseWriter, r *http.Request) {
		if by, err := time.ParseDuration(r.FormValue("shift")); !refused(w, err) {
			s.wall.set(s.config.Test.Wall + by)
		}
	})
	m.HandleFunc("POST /rate", func(w http.ResponseWriter, r *http.Request) {
		if ppm, err := strconv.ParseInt(r.FormValue("ppm"), 10, 64); !refused(w, err) {
			s.source.run(ppm)
		}
	})
	m.HandleFunc("POST /handover", func(http.ResponseWriter, *http.Request) { s.HandOver() })
	return m
}

func refused(w http.ResponseWriter, err error) bool {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return err != nil
}
