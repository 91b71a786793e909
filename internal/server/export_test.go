package server

import quotav1 "github.com/quorate/quorate/api/quota/v1"

// Bounds that tests go up to.
const (
	MaxBody       = maxBody
	MaxChecks     = maxChecks
	MaxMessage    = maxMessage
	MaxOpen       = maxOpen
	FrontTimeout  = frontTimeout
	FrontAttempts = frontAttempts
)

// Service is the gRPC service without a connection.
func (s *Server) Service() quotav1.QuotaServer { return &quota{server: s} }

// Advice is the wait that a denial tells, in whole seconds.
var Advice = retryAfter
