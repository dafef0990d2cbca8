"""The console: pages for operators at `/trivet/ui` on the admin port."""
